"""One training run's folder, and what is decided before anything trains: the recipe, the windows, the plan.

runs/<run key>/table.json      the table version that the run is about
               recipe.json     the recipe with the trigger's overrides
               windows/        what is trained on and what is held out
               plan.json       workers, batch, steps, and why
               checkpoints/    of all attempts
               result.json     written when the training is done
               report.json     scores beside champion and baselines
"""

import os
from contextlib import suppress

from pipelines import storage
from pipelines.config import Recipe, load_recipe, parse_recipe
from pipelines.errors import ConflictError, ObjectNotFoundError
from pipelines.ingest import events
from pipelines.splits import split
from pipelines.train.jobs import Cluster, RayJobs, local_cluster
from pipelines.train.plan import make_plan
from pipelines.windows import WindowSet, assemble, examples, load_windows, save_windows, table_columns

_TABLE = "table.json"
_RECIPE = "recipe.json"
_WINDOWS = "windows"


def build_windows(name: str, *, run_key: str, workers: int | None = None, epochs: int | None = None) -> str:
    """Cut the newest version of the recipe's table into training, validation and held-out examples.

    Args:
        name: Recipe.
        run_key: Identity of the run; names its folder.
        workers: Instead of the recipe's, if given.
        epochs: Instead of the recipe's, if given.
    """
    recipe = load_recipe(name).override(workers=workers, epochs=epochs)
    run = storage.lake("runs", run_key)
    table = storage.lake("tables", recipe.source)
    version = _frozen_version(run, table)
    found = examples(storage.read_table(table, version=version, columns=table_columns(recipe)), recipe)
    chosen = split(found.index, recipe.split, events=events.load(recipe.source), kind=recipe.events)
    windows = assemble(
        found,
        chosen.parts,
        targets=recipe.window.targets if recipe.window else (),
        table=table,
        table_version=version,
        left_out=chosen.left_out,
    )
    storage.write_json(storage.join(run, _RECIPE), recipe.model_dump(mode="json"))
    return save_windows(storage.join(run, _WINDOWS), windows)


def windows_of(run_key: str) -> WindowSet | None:
    """What a run saw, without the arrays; `None` if it has no windows in this lake."""
    try:
        return load_windows(storage.lake("runs", run_key, _WINDOWS), parts=())
    except ObjectNotFoundError:
        return None


def _frozen_version(run: str, table: str) -> int:
    """The table version of a run: the newest when it is first asked for, the same whenever its steps are repeated.

    Checkpoints of the run belong to that version; data that came later belong to another run.
    """
    location = storage.join(run, _TABLE)
    newest = {"table": table, "version": storage.table_version(table)}
    if newest["version"] == -1:  # it may be there before the retry
        raise ObjectNotFoundError(f"{table}: no such table; publish a batch first (trackside ingest URI)")
    with suppress(ConflictError):
        storage.write_json(location, newest, if_absent=True)
    return int(storage.read_json(location)["version"])


def plan(windows: str) -> str:
    """Decide how the windows of a run are trained on; return the location of the plan."""
    run = windows.rstrip("/").removesuffix(f"/{_WINDOWS}")
    decided = make_plan(windows, recipe_of(run), storage.name_of(run), _cluster(), location=run)
    return decided.save()


def _cluster() -> Cluster:
    """What the engine has; without one, what this machine has."""
    return RayJobs.from_environment().cluster() if os.environ.get("TRACKSIDE_RAY_URL") else local_cluster()


def recipe_of(run: str) -> Recipe:
    """The recipe of a run's folder."""
    location = storage.join(run, _RECIPE)
    return parse_recipe(storage.read_json(location), where=location)
