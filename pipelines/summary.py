"""What a finished run did, for a person: data in and out, training, scores, gate, champion."""

import math
from typing import Any

from pipelines import lineage, registry, storage, tracking
from pipelines.assessment import DECISION, REPORT
from pipelines.evaluate import Report
from pipelines.ingest import landing
from pipelines.train.outcome import read_outcome
from pipelines.train.plan import load_plan
from pipelines.windows import load_windows

METRICS = ("f1", "precision", "recall", "pr_auc", "event_recall", "median_lead_s", "false_alarms_per_month")
"""Scores that are shown; larger is better for all but the last."""


def summarise(plan_location: str) -> dict[str, Any]:
    """Facts, a table of scores (candidate, champion, baselines by those of `METRICS` that were measured), the gate."""
    plan = load_plan(plan_location)
    outcome = read_outcome(plan.location)
    report = Report.from_dict(storage.read_json(storage.join(plan.location, REPORT)))
    decision = storage.read_json(storage.join(plan.location, DECISION))
    num_quarantined = sum(item["outcome"] == "quarantined" for item in landing.outcomes(plan.recipe.source))
    published = landing.published(plan.recipe.source)
    windows = load_windows(plan.windows, parts=())
    changed = lineage.mark_of(windows)
    champion = registry.champion_version(plan.recipe.name)
    compared = [report.model, *([report.champion] if report.champion else []), *report.baselines]
    measured = [name for name in METRICS if any(not math.isnan(item.scores.get(name, math.nan)) for item in compared)]
    return {
        "simulated": any(part["simulated"] for item in published for part in item["parts"]),
        "facts": {
            "recordings": f"{len(published)} published, {num_quarantined} quarantined",
            "rows in": f"{sum(item['rows_in'] for item in published):,}",
            "aligned rows out": f"{sum(item['rows_out'] for item in published):,}",
            "rejected rows": _listed(landing.rejected(published)),
            "examples": _listed(windows.counts),
            **({"changed since": str(changed)} if changed else {}),
            "workers": f"{outcome.workers} ({outcome.attempts} attempt{'s' if outcome.attempts > 1 else ''})",
            "steps": outcome.steps,
            "loss": f"{outcome.train_loss:.5g} in the last step, {outcome.validation_loss:.5g} in validation at best",
            "goodput": f"{outcome.goodput['goodput']:.1%} of the wall time was training (the rest is start-up, mostly)",
            "candidate": f"version {decision['version']}, {_decided(decision)}",
            "champion": f"{plan.recipe.name} version {champion}" if champion else "none yet",
            "MLflow run": tracking.run_url(plan.run_key, experiment=plan.recipe.name),
        },
        "metrics": measured,
        "scores": {item.name: [_or_none(item.scores.get(name)) for name in measured] for item in compared},
        "rules": decision["rules"],
        "champion": champion,
        "mlflow_run": outcome.mlflow_run_id,
    }


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"


def _decided(decision: dict[str, Any]) -> str:
    if not decision["promoted"]:
        return "refused by the gate"
    return "promoted by force against the gate" if decision["forced"] else "promoted"


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
