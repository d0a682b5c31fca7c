"""The doors of the project from a shell. Exit code 0 means that it did it.

With `--json` a command prints one JSON object on stdout and nothing else; logs and progress go to stderr.
"""

import getpass
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import Progress, SpinnerColumn, TaskID, TimeElapsedColumn
from rich.table import Table

from pipelines import services, steps
from pipelines.demo import print_logins
from pipelines.errors import ConfigError, TracksideError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, help=__doc__)
models_app = typer.Typer(no_args_is_help=True, help="The registered models.")
app.add_typer(models_app, name="models")

WIDE = None if sys.stdout.isatty() else 160
"""Columns of a table that goes to a file or a pipe, where nobody's window is too small."""

out = Console(width=WIDE)
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
Ports = Annotated[list[str] | None, typer.Option("--port", help="Another port, e.g. airflow=8090; may be repeated.")]


def main() -> None:
    """Run the command line; an error of ours is one message, not a traceback."""
    logging.basicConfig(
        level=logging.WARNING, handlers=[RichHandler(console=err, show_path=False)], format="%(message)s"
    )
    try:
        app()
    except TracksideError as error:
        _print_error(error)
        sys.exit(1)


@app.callback()
def _start(verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what is being done.")] = False) -> None:
    """Trackside: recordings of trains, tracks and trackside radio sites, turned into models every night."""
    if verbose:
        logging.getLogger("pipelines").setLevel(logging.INFO)


@app.command()
def up(port: Ports = None) -> None:
    """Start the local services: object store, MLflow, Airflow, Ray."""
    with err.status("starting the services") as line:
        services.up(home(), ports=_ports(port or []), on_progress=lambda found: line.update(_progress(found)))
    status()


@app.command()
def down() -> None:
    """Stop every process that `up` started."""
    with err.status("stopping the services"):
        stopped = services.down(home())
    out.print(f"stopped {stopped} processes" if stopped else "nothing was running")


@app.command()
def status(json_: Json = False) -> None:
    """Say which services run, where, and how to log in."""
    found = services.status(home())
    if json_:
        _print_json({"services": [asdict(service) for service in found]})
    elif found:
        table = Table("service", "state", "address", "restarts", "log")
        for service in found:
            table.add_row(service.name, service.state, service.url, str(service.restarts), service.log)
        out.print(table)
        print_logins(out, home())
    else:
        out.print("no services are running; `trackside up` starts them")
    if not found or any(service.state not in {"ready", "done"} for service in found):
        raise typer.Exit(1)


@app.command()
def demo(
    data: Annotated[str, typer.Option(help="A real recording (file or folder) instead of the simulated fleet.")] = "",
    port: Ports = None,
) -> None:
    """Run the main job: services, a landed fleet, a nightly retraining by the real scheduler, a champion."""
    from pipelines import demo as job

    job.run(home(), data=data, ports=_ports(port or []), console=out)


@app.command()
def fetch(name: str, to: Annotated[Path, typer.Option(help="Folder to put it in.")] = Path("data")) -> None:
    """Download a published data set, resume a broken download, and check size and SHA-256."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    from pipelines.ingest import fetch as download

    with Progress("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=err) as progress:
        task = progress.add_task(name, total=None)
        path = download.fetch(name, to, progress=lambda done, total: progress.update(task, completed=done, total=total))
    out.print(str(path), markup=False, highlight=False, soft_wrap=True)


@app.command()
def simulate(
    to: Annotated[Path, typer.Option("--out", help="Folder for `bundles/` and `truth/`.")],
    seed: Annotated[int, typer.Option(help="Same seed, same fleet.")],
    vehicles: Annotated[int, typer.Option(min=1)] = 4,
    days: Annotated[int, typer.Option(min=1)] = 4,
    difficulty: Annotated[
        str, typer.Option(help="How hard the trips are to put right, e.g. steps, liars, drift, autumn, hard.")
    ] = "default",
    json_: Json = False,
) -> None:
    """Write trip bundles of a simulated fleet, its truth kept apart."""
    from pipelines.simulate import level, simulate_fleet

    summary = asdict(simulate_fleet(to, seed=seed, vehicles=vehicles, days=days, difficulty=level(difficulty)))
    _show(summary, as_json=json_)


@app.command()
def sync(
    bundle: Annotated[str, typer.Argument(help="A bundle's folder, or a file or folder of any known source.")],
    to: Annotated[Path, typer.Option("--out", help="Folder for rows.parquet, aligned.parquet and the reports.")],
    json_: Json = False,
) -> None:
    """Map clocks, screen, align and locate one recording; every row gets its instant, its place or its reason."""
    with _stages() as on_progress:
        report = steps.sync(bundle, out=str(to), on_progress=on_progress)
    if json_:
        _print_json(report)
    else:
        for recording in report.get("recordings", [report]):
            _print_synced(recording)
        for failed in report.get("failed", []):
            err.print(f"not used: {failed}", style="yellow", markup=False, highlight=False, soft_wrap=True)
        out.print(f"written to {to}", markup=False, highlight=False, soft_wrap=True)
    if report.get("failed"):
        raise typer.Exit(1)


@app.command()
def clocks(
    exchanges: Annotated[
        str,
        typer.Argument(help="NTP exchanges: `ntp_log.csv`, or a log of ntpd or chrony (rawstats, measurements, ...)."),
    ],
    predict: Annotated[str, typer.Option(help="CSV or Parquet file with `clock_id` and `t_dev`, in stored order.")],
    to: Annotated[str, typer.Option("--out", help="CSV or Parquet file for `clock_id, t_dev, t_utc_ns, sigma_ns`.")],
    maps: Annotated[str, typer.Option(help="Also keep the maps: a file with one JSON object a clock.")] = "",
    json_: Json = False,
) -> None:
    """Map device stamps to UTC by NTP exchanges alone."""
    with _stages() as on_progress:
        report = steps.predict_clocks(exchanges, predict, out=to, maps=maps, on_progress=on_progress)
    if json_:
        _print_json(report)
        return
    _print_clocks(report)


@app.command()
def ingest(
    uri: str,
    force: Annotated[
        bool, typer.Option(help="Process it even if it is unchanged, and let it replace richer data.")
    ] = False,
    json_: Json = False,
) -> None:
    """Land, read, synchronise, validate and publish a bundle or any known source, without Airflow.

    What was delivered before changes nothing. A delivery that is poorer than what is published of the same recording is
    set aside. Models that were trained on data which this changes are marked.
    """
    _use_services()
    result = _ingest(uri, force=force)
    _show(result, as_json=json_)
    if result["failed"]:
        raise typer.Exit(1)


@app.command()
def train(
    recipe: str,
    data: Annotated[str, typer.Option(help="Ingest this recording first.")] = "",
    workers: Annotated[str, typer.Option(help="Number of workers, or MIN:MAX.")] = "",
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    strategy: Annotated[str, typer.Option(help="auto or ddp.")] = "auto",
    force_promote: Annotated[bool, typer.Option(help="Make it champion whatever the gate says.")] = False,
    json_: Json = False,
) -> None:
    """Plan, train, evaluate, register and promote, without Airflow."""
    if strategy not in {"auto", "ddp"}:
        raise ConfigError(f"--strategy {strategy!r}: auto or ddp would be right")
    max_workers = _max_workers(workers)
    source = steps.source_of_recipe(recipe)
    if data and (found := steps.source_of(data)) != source:
        raise ConfigError(f"--data {data} is {found}, but recipe {recipe} trains on {source}")
    _use_services()
    if data:
        _ingest(data, force=False)
    run_key = f"{recipe}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    result = steps.retrain(
        recipe, run_key=run_key, decided_by=_person(), workers=max_workers, epochs=epochs, force=force_promote
    )
    _show(result, as_json=json_)


@app.command()
def score(
    model_uri: str,
    data: Annotated[str, typer.Option(help="New rows: a table, a recording or a bundle.")],
    to: Annotated[Path, typer.Option("--out", help="CSV file for the scores.")],
    json_: Json = False,
) -> None:
    """Apply a registered model, e.g. `models:/hot_bearing@champion`, to new rows."""
    _use_services()
    _show(steps.score(model_uri, data=data, out=str(to)), as_json=json_)


@app.command()
def bench(name: Annotated[str, typer.Argument(help="One benchmark, or all.")] = "all", json_: Json = False) -> None:
    """Run the benchmarks, each against its peer in the same run; exit code 1 if one misses its target."""
    from pipelines import bench as benchmarks

    results = benchmarks.run(name)
    if json_:
        _print_json({**results})
    else:
        for each, result in results.items():
            sides, rows = benchmarks.as_table(result)
            table = Table("figure", *sides, "limit", title=f"{each}: {'passed' if result['passed'] else 'missed'}")
            for row in rows:
                table.add_row(row.figure, *row.values, row.limit)
            out.print(table)
    if not all(result["passed"] for result in results.values()):
        raise typer.Exit(1)


@models_app.command("list")
def list_models(name: Annotated[str, typer.Argument()] = "", json_: Json = False) -> None:
    """All registered versions, newest first."""
    _use_services()
    versions = steps.list_models(name)
    if json_:
        _print_json({"versions": versions})
        return
    table = Table("model", "version", "aliases", "gate", "data", "MLflow run")
    for version in versions:
        tags = version["tags"]
        table.add_row(
            version["model"],
            version["version"],
            ", ".join(version["aliases"]),
            tags.get("trackside.gate", ""),
            "changed since" if "trackside.data_superseded" in tags else "",
            version["run_id"],
        )
    out.print(table)


@models_app.command("show")
def show_model(name: str, version: str, json_: Json = False) -> None:
    """One registered version with its evidence."""
    _use_services()
    found = [item for item in steps.list_models(name) if item["version"] == version]
    if not found:
        raise ConfigError(f"model {name!r} has no version {version!r}; see `trackside models list {name}`")
    _show(found[0], as_json=json_)


@models_app.command("promote")
def promote_model(
    name: str,
    version: str,
    reason: Annotated[str, typer.Option(help="Why, for the ledger.")] = "",
    force: Annotated[bool, typer.Option(help="Make it champion whatever the gate says.")] = False,
    json_: Json = False,
) -> None:
    """Make a version champion if its report passes the gate, or by force."""
    _use_services()
    decision = steps.promote_version(
        name, version, key=_new_key("promote"), decided_by=_person(), reason=reason, force=force
    )
    _show(decision, as_json=json_)


@models_app.command("rollback")
def roll_back(
    name: str,
    version: Annotated[str, typer.Argument(help="Empty: the one that the present champion replaced.")] = "",
    *,
    reason: Annotated[str, typer.Option(help="Why, for the ledger.")],
    json_: Json = False,
) -> None:
    """Make an earlier version champion again."""
    _use_services()
    line = steps.roll_back(name, version, key=_new_key("rollback"), decided_by=_person(), reason=reason)
    _show(line["change"], as_json=json_)


@models_app.command("history")
def model_history(name: str, json_: Json = False) -> None:
    """Who made which version champion, when and why."""
    _use_services()
    lines = steps.model_history(name)
    if json_:
        _print_json({"lines": lines})
        return
    table = Table("line", "decided", "action", "from", "to", "by", "reason", "against the gate")
    for line in lines:
        change = line["change"]
        cells = (line["decided_at"], change["action"], change["from_version"], change["to_version"])
        forced = "yes" if change["is_forced"] else ""
        table.add_row(str(line["sequence"]), *cells, change["decided_by"], change["reason"], forced)
    out.print(table)


@models_app.command("verify")
def verify_model(name: str, json_: Json = False) -> None:
    """Check the ledger against tampering and the registry against the ledger; exit code 1 if something is wrong."""
    _use_services()
    problems = steps.verify_model(name)
    if json_:
        _print_json({"model": name, "problems": problems})
    else:
        out.print("\n".join(problems) or f"the ledger of {name} is whole, and the registry agrees with it")
    if problems:
        raise typer.Exit(1)


def home() -> Path:
    """Where the local services keep their state."""
    return services.default_home().resolve()


def _person() -> str:
    """Who is at this shell, for the ledger."""
    return f"{getpass.getuser()} (shell)"


def _new_key(action: str) -> str:
    """A name for an act that nobody retries by name."""
    return f"shell/{action}/{uuid.uuid4()}"


def _progress(found: Iterable[services.ServiceStatus]) -> str:
    """What `up` is waiting for."""
    waiting = [service.name for service in found if service.state not in {"ready", "done"}]
    return f"starting the services; waiting for {', '.join(waiting)}"


def _print_synced(report: dict[str, Any]) -> None:
    """What became of the rows, the clocks and the place of one recording."""
    sensors = Table(
        "sensor", "clock", "rows", "used", "rejected", title=f"{report['vehicle']} {report['recording_id']}"
    )
    for name, sensor in report["sensors"].items():
        why = ", ".join(f"{reason} {count:,}" for reason, count in sensor["rejected"].items())
        sensors.add_row(name, sensor["clock_id"], f"{sensor['rows']:,}", f"{sensor['used']:,}", why)
    clocks = Table("clock", "tied by", "offset, ms", "drift, ppm", "steps, ms", "σ at most, ms")
    for clock_id, clock in report["clocks"].items():
        numbers = (clock["offset_ms"], clock["drift_ppm"], clock["steps_ms"], clock["sigma_max_ms"])
        clocks.add_row(clock_id, clock["method"], *map(_plain, numbers))
    out.print(sensors, clocks)
    facts = report["position"].items()
    place = ", ".join(f"{name} {_plain(value)}" for name, value in facts if isinstance(value, int | float))
    out.print(f"place: {place}", markup=False, highlight=False, soft_wrap=True)
    for refusal in report["refusals"]:
        err.print(f"refused: {refusal['message']}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _print_clocks(report: dict[str, Any]) -> None:
    """What became of the clocks of a log and of the stamps."""
    table = Table(
        "clock", "counts", "stamps", "offset, ms", "drift, ppm", "steps, ms", "σ, ms", "floor, ms", "not believed"
    )
    for clock_id, clock in report["clocks"].items():
        names = ("num_stamps", "offset_ms", "drift_ppm", "steps_ms", "sigma_median_ms", "floor_ms")
        not_believed = clock.get("reason") or ", ".join(clock["servers_rejected"])
        table.add_row(clock_id, clock["unit"], *(_plain(clock.get(name)) for name in names), not_believed)
    out.print(table)
    for sentence in report["unread"]:
        err.print(f"not read: {sentence}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    summary = f"{report['num_mapped']:,} of {report['num_stamps']:,} stamps mapped, written to {report['out']}"
    out.print(summary, markup=False, highlight=False, soft_wrap=True)


def _plain(value: Any) -> str:
    """A number with the digits that matter; a list of them."""
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value or "")


@contextmanager
def _stages() -> Iterator[Callable[[str, str], None]]:
    """Show on a terminal what is being done: a line a stage, with the time it took."""
    columns = (
        SpinnerColumn(finished_text="[green]✓[/green]"),
        "{task.description}",
        "{task.fields[thing]}",
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def begin(stage: str, thing: str) -> None:
            if stage not in tasks:
                _finish(progress)
                tasks[stage] = progress.add_task(stage, total=1, thing=thing)
            progress.update(tasks[stage], thing=thing)

        yield begin
        _finish(progress)


def _finish(progress: Progress) -> None:
    """End the stages that were begun."""
    for task in progress.tasks:
        progress.update(task.id, completed=1)


def _use_services() -> None:
    """Reach the local services if they run, unless the environment says where else to go."""
    if "TRACKSIDE_LAKE" not in os.environ and services.status(home()):
        services.use(home())


def _ingest(uri: str, *, force: bool) -> dict[str, Any]:
    """Land and publish what can be, say at once what cannot, and mark what was trained on data that this changed."""
    published: list[dict[str, Any]] = []
    unchanged: list[str] = []
    failed: dict[str, str] = {}
    due = []
    for location in steps.land(uri):
        outcome = {} if force else steps.outcome_of(location)
        if not outcome:
            due.append(location)
        elif outcome["outcome"] == "published":
            unchanged.append(location)
        else:
            why = "\n".join(outcome["reasons"])
            failed[location] = f"{location}: refused before, unchanged since; --force tries again: {why}"
            _print_warning("failed", failed[location])
    for batch in steps.vehicle_days(due):
        try:
            done = steps.publish(steps.validate(steps.synchronise(batch)), force=force)
        except TracksideError as error:
            failed |= dict.fromkeys(batch, str(error))
            _print_error(error)
            continue
        published.append(done)
        for refusal in done["refused"]:
            _print_warning("refused", refusal)
        for location, reasons in done["quarantined"].items():
            failed[location] = "\n".join(reasons)
            _print_warning("failed", f"{location}: {failed[location]}")
    return {
        "published": published,
        "unchanged": unchanged,
        "failed": failed,
        "superseded": steps.mark_superseded(),  # whatever is new: an earlier run may have died before it came to this
    }


def _ports(options: list[str]) -> dict[str, int]:
    ports = {}
    for option in options:
        service, _, number = option.partition("=")
        if not number.isdecimal() or int(number) > 65_535:
            raise ConfigError(f"--port {option!r}: SERVICE=NUMBER would be right, for example airflow=8090")
        ports[service] = int(number)
    return ports


def _max_workers(text: str) -> int | None:
    """The larger number of `MIN:MAX`; elastic workers come with a later engine."""
    if not text:
        return None
    parts = text.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 2 or int(parts[0]) > int(parts[-1]):
        raise ConfigError(f"--workers {text!r}: a number or MIN:MAX would be right")
    return int(parts[-1])


def _print_warning(word: str, message: str) -> None:
    err.print(f"[yellow]{word}:[/yellow]", end=" ")
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def _print_error(error: TracksideError) -> None:
    err.print(f"[red]{type(error).__name__}:[/red]", end=" ")
    err.print(str(error), markup=False, highlight=False, soft_wrap=True)


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    printer: Callable[[dict[str, Any]], None] = _print_json if as_json else _print_pairs
    printer(result)


def _print_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, default=str))


def _print_pairs(result: dict[str, Any]) -> None:
    for key, value in result.items():
        out.print(f"[bold]{key}[/bold]", end=" ")
        out.print(
            json.dumps(value, default=str, indent=1) if isinstance(value, dict | list) else str(value), markup=False
        )


if __name__ == "__main__":
    main()
