"""A registered model applied to new rows.

Shape suffix: N = windows or rows.
"""

import logging
from collections.abc import Iterator
from typing import Any

import polars as pl

from pipelines import registry, storage
from pipelines.errors import RecordingError
from pipelines.ingest import metropt3_windows, sources
from pipelines.registry import LoadedModel
from pipelines.sync import synchronise
from pipelines.windows import cut_windows

logger = logging.getLogger(__name__)

_STAMP = "%Y-%m-%dT%H:%M:%S%.3fZ"


def score_file(model_uri: str, *, data: str, out: str) -> dict[str, Any]:
    """Score new rows with a registered model; write one line a row or window to the CSV file `out`.

    Args:
        model_uri: For example `models:/metro_compressor_windows@champion`.
        data: A file or folder of the source that the model was trained on; labels are not needed.
        out: Where to write. A row of a table that cannot be scored is in it without a score, with the reason.
    """
    model = registry.load(model_uri)
    parts = list(_labelled(model, data) if model.recipe.window is None else _recorded(model, data))
    if not any(len(part) for part in parts):
        raise RecordingError(f"{data}: nothing to score: no readable {model.recipe.source} row or full window in it")
    lines = pl.concat(parts)
    storage.write_bytes(out, lines.write_csv().encode())
    return {
        "model": model_uri,
        "out": out,
        "rows": len(lines),
        "scored": int(lines["score"].is_not_null().sum()),
        "anomalies": int(lines["is_anomaly"].sum()),
        "threshold": model.threshold,
    }


def _labelled(model: LoadedModel, data: str) -> Iterator[pl.DataFrame]:
    """Rows of a table, in the order of the file; `row` is the zero-based position."""
    table = metropt3_windows.read_windows(data)
    scored = table.rows.select("row", **_scored(model, table.rows.select(model.columns).to_numpy())).with_columns(
        reason=pl.lit("")
    )
    sentence = pl.format("{} '{}': {}", "column", pl.col("found").fill_null(""), "reason").str.strip_chars_start()
    refused = table.quarantined.group_by("row").agg(reason=sentence.head(10).str.join("; "))
    yield pl.concat([scored, refused], how="diagonal").sort("row")


def _recorded(model: LoadedModel, data: str) -> Iterator[pl.DataFrame]:
    """Windows of recordings, cut as in training."""
    window = model.recipe.window
    assert window is not None
    for recording in sources.read(data, model.recipe.source):
        aligned = synchronise(recording).aligned
        if missing := [channel for channel in window.channels if channel not in aligned.columns]:
            logger.warning("%s: not scored, it has no %s", recording.recording_id, ", ".join(missing))
            continue
        found = cut_windows(aligned, window)
        logger.info("%s: %d windows, left out: %s", recording.recording_id, len(found.x), found.left_out)
        if len(found.x):
            bounds = {
                name: pl.from_epoch(f"{name}_ns", time_unit="ns").dt.to_string(_STAMP)
                for name in ("t_start_utc", "t_end_utc")
            }
            yield found.index.select("vehicle", "recording_id", **bounds, **_scored(model, found.x))


def _scored(model: LoadedModel, x: Any) -> dict[str, pl.Series]:
    score_N = model.score(x)
    return {"score": pl.Series(score_N), "is_anomaly": pl.Series(score_N >= model.threshold)}
