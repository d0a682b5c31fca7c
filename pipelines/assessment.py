"""What a training was worth: scores on held-out data beside champion and baselines, the candidate, the decision.

Shape suffix: N = windows or rows.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from torch import nn

from pipelines import lineage, promotion, registry, runs, storage, tracking
from pipelines.config import Recipe
from pipelines.errors import ConfigError
from pipelines.evaluate import Report, Scored, plots
from pipelines.evaluate.baselines import table_baselines, window_baselines
from pipelines.evaluate.bootstrap import Difference, Judged, paired_difference, time_blocks
from pipelines.evaluate.events import AlarmRule, Event, score_events
from pipelines.evaluate.rows import best_f1_threshold, score_rows
from pipelines.ingest import events, landing
from pipelines.ledger import Act
from pipelines.models import build_model, calibrate, score_windows
from pipelines.splits import share_in_events
from pipelines.train.checkpoint import read_checkpoint
from pipelines.train.outcome import read_outcome
from pipelines.train.plan import Plan, load_plan
from pipelines.train.snapshot import load_model
from pipelines.windows import WindowSet, load_windows

REPORT = "report.json"
DECISION = "decision.json"

EVENT_SHARE = 0.5
"""A window is anomalous if at least this share of it lies in a known event."""

LABEL_THRESHOLD = 0.5
"""A classifier's score is a probability, and with few positives a threshold tuned on them would be mostly luck."""

HEALTHY_QUANTILE = 0.995
"""Without labels to choose by, an alarm begins where this share of the healthy validation scores ends."""

BLOCK_S = 3600.0
"""Length of a block of the bootstrap: the rows of one trip may all be alike."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _HeldOut:
    """What is known of the held-out examples."""

    label_N: np.ndarray
    """True where an example is anomalous."""

    block_N: np.ndarray
    """Examples of one block are not independent of each other."""

    known_utc_ns_N: np.ndarray | None
    """When the score of each window is known; `None` for rows that have no time."""

    vehicle_N: np.ndarray
    events: tuple[Event, ...]
    stride_s: float


def evaluate(plan_location: str) -> str:
    """Score the trained model of a plan on held-out data; return the location of the report."""
    plan = load_plan(plan_location)
    windows = load_windows(plan.windows)
    held_out = _held_out(plan.recipe, windows)
    model = _trained(plan, windows)
    judged = {"candidate": _judged_model(plan.recipe, model, windows)} | _judged_baselines(windows)
    name, champion = _judged_champion(plan.recipe, windows)
    scored = {key: Scored(name=key, scores=_scores(held_out, item)) for key, item in judged.items()}
    report = Report(
        recipe=plan.recipe.name,
        model=scored.pop("candidate"),
        champion=Scored(name=name, scores=_scores(held_out, champion)) if champion else None,
        baselines=tuple(scored.values()),
        held_out=windows.digest,
        difference=_difference(held_out, judged["candidate"], champion) if champion else None,
    )
    location = storage.write_json(storage.join(plan.location, REPORT), report.to_dict())
    if tracking.is_configured():
        _track(plan, windows, held_out, report, judged)
    logger.info("%s: %s", plan.run_key, report.model.scores)
    return location


def register(plan_location: str, report_location: str) -> str:
    """Make the trained model of a plan a registry version with its evidence; return `<model name>/<version>`."""
    plan = load_plan(plan_location)
    windows = load_windows(plan.windows)
    report = Report.from_dict(storage.read_json(report_location))
    version = registry.register(
        _trained(plan, windows),
        recipe=plan.recipe,
        run_id=read_outcome(plan.location).mlflow_run_id,
        example_x=windows.test_x[:4],
        columns=windows.channels,
        threshold=report.model.scores["threshold"],
        tags=_evidence(plan, windows, report_location),
    )
    return f"{plan.recipe.name}/{version}"


def promote(candidate: str, report_location: str, *, force: bool, act: Act) -> dict[str, Any]:
    """Let the gate decide about `<model name>/<version>`; it becomes champion if it passes or is forced."""
    name, _, version = candidate.partition("/")
    run = report_location.rpartition("/")[0]
    report = Report.from_dict(storage.read_json(report_location))
    present = promotion.champion(name)
    rules = registry.gate(runs.recipe_of(run).gate, report)
    if present not in ("", version):
        rules = (*rules, registry.compared_with(present, name=name, report=report))
    decision = promotion.promote(name, version, previous=present, rules=rules, force=force, act=act).to_dict()
    storage.write_json(storage.join(run, DECISION), decision)
    return decision


def _held_out(recipe: Recipe, windows: WindowSet) -> _HeldOut:
    """Label the held-out examples: by the table's own labels, or by how much of a window lies in a known event."""
    index = windows.test_index
    if windows.test_y is not None or recipe.window is None:
        assert windows.test_y is not None
        return _HeldOut(
            label_N=windows.test_y > 0,
            block_N=index[recipe.split.group].to_numpy() if recipe.split.group else np.arange(len(index)),
            known_utc_ns_N=None,
            vehicle_N=index["vehicle"].to_numpy(),
            events=(),
            stride_s=0.0,
        )
    known = events.load(recipe.source).filter(pl.col("kind") == recipe.events)
    end_N, vehicle_N = index["t_end_utc_ns"].to_numpy(), index["vehicle"].to_numpy()
    return _HeldOut(
        label_N=share_in_events(index, known, kind=recipe.events) >= EVENT_SHARE,
        block_N=time_blocks(end_N, vehicle_N, length_s=BLOCK_S),
        known_utc_ns_N=end_N,
        vehicle_N=vehicle_N,
        events=tuple(Event(**row) for row in known.select("vehicle", "start_utc_ns", "end_utc_ns").to_dicts()),
        stride_s=recipe.window.stride_s,
    )


def _trained(plan: Plan, windows: WindowSet) -> nn.Module:
    """The network with the weights of the best checkpoint, ready to score."""
    model = build_model(plan.recipe, len(windows.channels))
    model.load_state_dict(load_model(read_checkpoint(read_outcome(plan.location).checkpoint)))
    if plan.recipe.window is not None:
        calibrate(model, windows.validation_x)
    return model.eval()


def _judged_model(recipe: Recipe, model: nn.Module, windows: WindowSet) -> Judged:
    if recipe.label:
        threshold = LABEL_THRESHOLD
    else:
        threshold = float(np.quantile(score_windows(model, windows.validation_x), HEALTHY_QUANTILE))
    return Judged(score_N=score_windows(model, windows.test_x), threshold=threshold)


def _judged_baselines(windows: WindowSet) -> dict[str, Judged]:
    """Each baseline with the threshold that suits it: the best for the training labels, or chosen as the model's is."""
    if windows.train_y is None:
        targets = [windows.channels.index(target) for target in windows.targets]
        healthy = window_baselines(windows.train_x, windows.validation_x, targets=targets)
        scores = window_baselines(windows.train_x, windows.test_x, targets=targets)
        thresholds = {name: float(np.quantile(score_N, HEALTHY_QUANTILE)) for name, score_N in healthy.items()}
    else:
        label_N = windows.train_y > 0
        own = table_baselines(windows.train_x, label_N, windows.train_x)
        scores = table_baselines(windows.train_x, label_N, windows.test_x)
        thresholds = {name: best_f1_threshold(score_N, label_N) for name, score_N in own.items()}
    return {name: Judged(score_N=score_N, threshold=thresholds[name]) for name, score_N in scores.items()}


def _judged_champion(recipe: Recipe, windows: WindowSet) -> tuple[str, Judged | None]:
    """The champion's name and its scores on the same held-out data; nothing where there is none that reads it."""
    version = registry.champion_version(recipe.name) if tracking.is_configured() else ""
    if not version:
        return "", None
    name = f"{recipe.name}/{version}"
    champion = registry.load(f"models:/{name}")
    if champion.columns != windows.channels or champion.shape != windows.test_x.shape[1:]:
        raise ConfigError(
            f"the champion {name} reads {champion.shape} values of {', '.join(champion.columns[:10])}, the held-out "
            f"data have {windows.test_x.shape[1:]} of {', '.join(windows.channels[:10])}: they cannot be compared; "
            "a recipe whose input changes needs a new name"
        )
    return name, Judged(score_N=champion.score(windows.test_x), threshold=champion.threshold)


def _scores(held_out: _HeldOut, judged: Judged) -> dict[str, float]:
    """Scores of rows, and of alarms where there is time."""
    scores = score_rows(judged.score_N, held_out.label_N, threshold=judged.threshold).to_scores()
    if held_out.known_utc_ns_N is None:
        return scores
    rule = AlarmRule(
        threshold=judged.threshold,
        period_s=held_out.stride_s,
        merge_gap_s=10 * held_out.stride_s,
        min_duration_s=2 * held_out.stride_s,
    )
    alarms = score_events(held_out.known_utc_ns_N, judged.score_N, held_out.vehicle_N, held_out.events, rule=rule)
    return scores | alarms.to_scores()


def _difference(held_out: _HeldOut, model: Judged, champion: Judged) -> Difference | None:
    """Model minus champion with its uncertainty; nothing where the held-out data cannot tell."""
    if not held_out.label_N.any() or len(np.unique(held_out.block_N)) < 2:
        return None
    rng = np.random.default_rng(0)
    return paired_difference(
        model, champion, held_out.label_N, held_out.block_N, metric="pr_auc", rng=rng, num_resamples=200
    )


def _track(plan: Plan, windows: WindowSet, held_out: _HeldOut, report: Report, judged: dict[str, Judged]) -> None:
    """Put scores and figures into the MLflow run of the training."""
    run = tracking.open_run(plan.run_key, experiment=plan.recipe.name)
    named = [("test", report.model), *((f"baseline_{item.name}", item) for item in report.baselines)]
    if report.champion:
        named.append(("champion", report.champion))
    run.log_summary(
        {f"{group}/{name}": value for group, item in named for name, value in item.scores.items() if np.isfinite(value)}
    )
    own = judged["candidate"]
    figures = {
        "scores": plots.score_distribution(own.score_N, held_out.label_N, threshold=own.threshold),
    }
    if held_out.label_N.any():
        figures["precision_recall"] = plots.precision_recall(
            {name: item.score_N for name, item in judged.items()}, held_out.label_N
        )
    if plan.recipe.window is not None:
        worst = int(np.argmax(own.score_N))
        where = windows.test_index.row(worst, named=True)
        figures["worst_window"] = plots.marked_window(
            windows.test_x[worst],
            np.full(windows.test_x.shape[1], own.score_N[worst] >= own.threshold),
            channels=windows.channels,
            rate_hz=plan.recipe.window.rate_hz,
            title=f"highest score {own.score_N[worst]:.3g}: {where['vehicle']} {where['day']}",
        )
    for name, figure in figures.items():
        run.log_figure(figure, f"figures/{name}.png")
    run.finish("FINISHED", {"trackside.simulated": _is_simulated(landing.published(plan.recipe.source))})


def _evidence(plan: Plan, windows: WindowSet, report_location: str) -> dict[str, str]:
    """What the version says about where it comes from."""
    published = landing.published(plan.recipe.source)
    parts = [part for evidence in published for part in evidence["parts"]]
    clocks = [clock for part in parts for clock in part.get("clocks", {}).values()]
    skews = [skew for part in parts for skew in part.get("skews", [])]
    changed = lineage.mark_of(windows)
    return {
        "trackside.run_key": plan.run_key,
        "trackside.report": report_location,
        "trackside.recipe": plan.recipe.digest,
        "trackside.table": f"{windows.table}@{windows.table_version}",
        "trackside.data": windows.digest,
        "trackside.rows_in": str(sum(part["num_rows_in"] for part in parts)),
        "trackside.rejected": str(landing.rejected(published)),
        "trackside.clock_residual_p99_ms": _worst(clock["residual_p99_ms"] for clock in clocks),
        "trackside.clock_sigma_max_ms": _worst(clock["sigma_max_ms"] for clock in clocks),
        "trackside.skew_ms": _worst(skew["skew_ms"] for skew in skews),
        "trackside.position_sigma_p95_m": _worst(part.get("position", {}).get("sigma_p95_m") for part in parts),
        "trackside.suites": json.dumps(_checks_passed(published)),
        "trackside.simulated": _is_simulated(published),
        **(changed.tag if changed else {}),
        **tracking.links_of(plan.run_key, experiment=plan.recipe.name),
    }


def _worst(values: Iterable[float | None]) -> str:
    """Largest magnitude of what was measured."""
    measured = [abs(value) for value in values if value is not None]
    return f"{max(measured):.3f}" if measured else "not measured"


def _checks_passed(published: list[dict[str, Any]]) -> dict[str, str]:
    """How many checks of each suite the published data passed; the outcomes in the lake have every number."""
    counts: dict[str, Counter[bool]] = {}
    for evidence in published:
        for suite, verdict in evidence["suites"].items():
            counts.setdefault(suite, Counter()).update(check["passed"] for check in verdict["checks"])
    return {suite: f"{count[True]} of {count.total()}" for suite, count in sorted(counts.items())}


def _is_simulated(published: list[dict[str, Any]]) -> str:
    """`true` if any of the data came from a simulation."""
    return str(any(part["simulated"] for evidence in published for part in evidence["parts"])).lower()
