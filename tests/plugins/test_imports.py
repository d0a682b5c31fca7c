import ast
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
FILES = sorted(PLUGINS.rglob("*.py"))


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_there_are_plugin_files():
    assert PLUGINS / "trackside_plugin.py" in FILES
    assert PLUGINS / "trackside_airflow" / "operators.py" in FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_a_plugin_file_knows_airflow_and_the_steps_and_nothing_below_them(path):
    modules = set(imported_modules(path))
    ours = {module for module in modules if module.startswith("pipelines")}
    allowed = {"airflow", "trackside_airflow", *sys.stdlib_module_names}
    if path.parent.name == "pages":
        allowed.add("fastapi")

    assert ours <= {"pipelines.steps"}
    assert {module.partition(".")[0] for module in modules - ours} <= allowed
