"""Our pages as a browser would ask for them, without a server."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from pipelines import steps

# Airflow itself imports a module of FastAPI that warns about the HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with:DeprecationWarning", "ignore:.*httpx2")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def app():
    from trackside_airflow.pages import app

    yield app
    app.dependency_overrides.clear()


@pytest.fixture
def reader(app, monkeypatch):
    """A user who may read the ingestion DAG asks."""
    from airflow.api_fastapi.core_api.security import get_user

    from trackside_airflow.pages import access

    app.dependency_overrides[get_user] = lambda: SimpleNamespace(name="reader")
    manager = SimpleNamespace(is_authorized_dag=lambda *, method, details, user: (method, details.id) == ALLOWED)
    monkeypatch.setattr(access, "get_auth_manager", lambda: manager)


ALLOWED = ("GET", "ingest_sensors")


@pytest.fixture
def documents(monkeypatch):
    """What the lake's docs area has; the paths that were asked for."""
    asked = []

    def read_document(path):
        asked.append(path)
        return (b"<h1>passed</h1>", "text/html") if path == "bundle/07/2026-01-12/trip_1/index.html" else None

    monkeypatch.setattr(steps, "read_document", read_document)
    return asked


def get(app, path):
    async def ask():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_a_reader_sees_the_report(app, reader, documents):
    answer = get(app, "/docs/bundle/07/2026-01-12/trip_1/index.html")

    assert (answer.status_code, answer.content) == (200, b"<h1>passed</h1>")
    assert answer.headers["content-type"].startswith("text/html")


def test_a_report_may_not_run_scripts_in_airflows_origin(app, reader, documents):
    headers = get(app, "/docs/bundle/07/2026-01-12/trip_1/index.html").headers

    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "script-src" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_what_is_not_there_is_not_found(app, reader, documents):
    assert get(app, "/docs/bundle/07/2026-01-13/trip_2/index.html").status_code == 404
    assert documents == ["bundle/07/2026-01-13/trip_2/index.html"]


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/quarantine/x",
        "bundle/%2e%2e/%2e%2e/runs/x",
        "..%2f..%2fruns",
        "%2fetc/passwd",
        "bundle//x",
        "bundle/%2e/x",
        "..%5cruns",
        "x%00",
        "",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_before_the_lake_is_asked(app, reader, documents, path):
    assert get(app, f"/docs/{path}").status_code == 404
    assert documents == []


def test_nobody_sees_nothing(app, documents):
    assert get(app, "/docs/bundle/07/2026-01-12/trip_1/index.html").status_code == 401
    assert documents == []


def test_a_user_without_the_right_to_the_ingestion_sees_nothing(app, reader, documents, monkeypatch):
    from trackside_airflow.pages import access

    refusing = SimpleNamespace(is_authorized_dag=lambda **_: False)
    monkeypatch.setattr(access, "get_auth_manager", lambda: refusing)

    assert get(app, "/docs/bundle/07/2026-01-12/trip_1/index.html").status_code == 403
    assert documents == []


def test_every_route_asks_who_is_there(app):
    paths = [route.path.replace("{path:path}", "x") for route in app.routes]

    assert paths
    assert {get(app, path).status_code for path in paths} == {401}


def test_the_plugin_costs_a_task_no_page():
    code = "import sys, trackside_plugin as p; print(p.TracksidePlugin.name, 'trackside_airflow.pages' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")])}

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.split()[-2:] == ["trackside", "False"]


def test_airflow_finds_the_plugin_and_runs_no_module_of_ours_by_its_bare_name():
    code = (
        "import sys; from airflow import plugins_manager; apps, _ = plugins_manager.get_fastapi_plugins();"
        "print([app['url_prefix'] for app in apps], {'assets', 'operators', 'links'} & set(sys.modules))"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    }

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.splitlines()[-1] == "['/trackside'] set()"
