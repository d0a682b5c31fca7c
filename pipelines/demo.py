"""The main job from one command: services, a landed fleet, a nightly retraining by the real scheduler, a champion."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipelines import services, steps
from pipelines.airflow_client import AirflowClient, TaskState
from pipelines.errors import ConfigError, ServiceError

FLEET_SEED, FLEET_VEHICLES, FLEET_DAYS = 7, 4, 4
"""The sample fleet: large enough that some bearings run hot on the days that are held out."""

RECIPE_OF_SOURCE = {
    "bundle": "hot_bearing",
    "metropt3": "metro_compressor",
    "metropt3_windows": "metro_compressor_windows",
}

INGEST_DEADLINE_S = 900
RETRAIN_DEADLINE_S = 3600


def run(home: Path, *, data: str, ports: dict[str, int], console: Console) -> None:
    """Run the main job and print what happened.

    Args:
        home: Folder of the local services.
        data: A recording of a known source; empty means the simulated sample fleet.
        ports: Ports other than the usual ones, by service.
        console: Where progress and summary are printed.
    """
    started = time.monotonic()
    source = steps.source_of(data) if data else "bundle"
    if source not in RECIPE_OF_SOURCE:
        raise ConfigError(f"{data}: no recipe trains on {source} yet; known are {', '.join(RECIPE_OF_SOURCE)}")
    with _stage(console, "services up"):
        services.up(home, ports=ports)
        services.use(home)
    if not data:
        with _stage(console, "sample fleet simulated (this is a simulation, not recorded data)"):
            data = _sample_fleet(home)
    with _stage(console, f"landed {data}"):
        steps.land(data, source=source)
    airflow = AirflowClient(
        os.environ["TRACKSIDE_AIRFLOW_URL"],
        username=os.environ["TRACKSIDE_AIRFLOW_USERNAME"],
        password=os.environ["TRACKSIDE_AIRFLOW_PASSWORD"],
    )
    _ingest(airflow, source, console)
    conf = {"recipe": RECIPE_OF_SOURCE[source]}
    run_id = airflow.trigger("nightly_retrain", conf)
    if failure := _follow(airflow, "nightly_retrain", run_id, RETRAIN_DEADLINE_S, console):
        raise ServiceError(failure)
    summary = steps.summary(airflow.returned("nightly_retrain", run_id, "plan"))
    _print_summary(console, summary, source=source)
    console.print(f"\nall of it took {time.monotonic() - started:.0f} s; the services stay up (`make down` stops them)")
    print_logins(console, home)


def print_logins(console: Console, home: Path) -> None:
    """Print the addresses and logins of both UIs."""
    for login in services.credentials(home):
        console.print(
            f"{login.service:<8} {login.url}  user {login.username}  password {login.password}", highlight=False
        )


def _sample_fleet(home: Path) -> str:
    """Simulate the sample fleet unless an earlier run has; its truth file is written last."""
    from pipelines.simulate import simulate_fleet

    fleet = home / f"fleet-{FLEET_SEED}-{FLEET_VEHICLES}-{FLEET_DAYS}"
    if not (fleet / "truth" / "events.csv").is_file():
        simulate_fleet(fleet, seed=FLEET_SEED, vehicles=FLEET_VEHICLES, days=FLEET_DAYS)
    return str(fleet)


def _ingest(airflow: AirflowClient, source: str, console: Console) -> None:
    """Have everything that is pending ingested, by the scheduled run if there is one, else by one that is triggered."""
    if not steps.pending(source):
        console.print("nothing new to ingest: the landed recordings are published already")
    while num_pending := len(steps.pending(source)):
        conf = {"prefix": source, "wait_s": 0}
        run_id = airflow.active_run("ingest_sensors") or airflow.trigger("ingest_sensors", conf)
        _follow(airflow, "ingest_sensors", run_id, INGEST_DEADLINE_S, console)  # failed, if one recording was refused
        if len(steps.pending(source)) == num_pending:
            raise ServiceError(
                f"{num_pending} recordings are still pending after {run_id}; see {airflow.url}/dags/ingest_sensors"
            )


def _follow(airflow: AirflowClient, dag_id: str, run_id: str, deadline_s: float, console: Console) -> str:
    """Print the tasks of a run as they start and end; return what failed, nothing if the run ended well."""
    console.print(
        f"[bold]{dag_id}[/bold] {run_id}  {airflow.url}/dags/{dag_id}/runs/{run_id}", highlight=False, soft_wrap=True
    )
    started = time.monotonic()
    seen: dict[str, str] = {}
    with console.status(dag_id) as line:
        for tasks in airflow.follow(dag_id, run_id, deadline_s=deadline_s):
            for task in _news(tasks, seen):
                console.print(f"  {time.monotonic() - started:5.0f} s  {task.label}: {task.state}", highlight=False)
            if seen.get("train") in {"running", "deferred"}:
                line.update(f"{dag_id}: {steps.training_progress(airflow.returned(dag_id, run_id, 'plan'))}")
            elif not set(seen.values()) - {"waiting"}:
                line.update(f"{dag_id}: waits for its turn; one run goes at a time")
    if (state := airflow.state(dag_id, run_id)) != "success":
        failed = ", ".join(label for label, state in seen.items() if state == "failed")
        message = f"{dag_id} {run_id} ended as {state}; failed: {failed or 'no task'}; see {airflow.url}/dags/{dag_id}"
        console.print(message, highlight=False)
        return message
    return ""


def _news(tasks: list[TaskState], seen: dict[str, str]) -> list[TaskState]:
    """Tasks that started or ended since the last look; `seen` is brought up to date."""
    told = {"running", "deferred", "success", "failed", "up_for_retry", "skipped", "upstream_failed"}
    news = [task for task in tasks if task.state in told and seen.get(task.label) != task.state]
    seen.update({task.label: task.state for task in tasks})
    return news


@contextmanager
def _stage(console: Console, title: str) -> Iterator[None]:
    started = time.monotonic()
    with console.status(title):
        yield
    console.print(f"{title}: {time.monotonic() - started:.0f} s")


def _print_summary(console: Console, summary: dict[str, Any], *, source: str) -> None:
    if summary["simulated"]:
        console.print("\nThe data below are a simulation.")
    table = Table(title=f"What happened ({source})", show_header=False)
    for name, value in summary["facts"].items():
        table.add_row(name, str(value))
    console.print(table)
    scores = Table("scores on held-out data", *summary["metrics"])
    for name, values in summary["scores"].items():
        scores.add_row(name, *("–" if value is None else f"{value:.3f}" for value in values))
    console.print(scores)
    for rule in summary["rules"]:
        console.print(
            f"gate: {'pass' if rule['passed'] else 'FAIL'}  {rule['name']}: {rule['detail']}", highlight=False
        )
