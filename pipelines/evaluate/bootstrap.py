"""Whether one model is better than another by more than luck.

Neighbouring windows share samples and weather, so they are no independent trials: whole blocks are drawn, not rows
(Künsch 1989). Both models are judged on the same draw, which takes out what is hard for both.

Shape suffixes: N = rows, G = blocks, R = resamples.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.metrics import average_precision_score

from pipelines.evaluate.rows import checked_labels


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Score of one model minus that of another on the same rows."""

    metric: str
    estimate: float
    """Difference on all rows."""

    low: float
    """Lower end of the 95 % interval."""

    high: float
    share_better: float
    """Share of the resamples in which the first model was better; ties count half."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Judged:
    """The scores of one model, and from which score on it calls a row positive."""

    score_N: np.ndarray
    threshold: float


def paired_difference(
    model: Judged,
    other: Judged,
    label_N: np.ndarray,
    block_N: np.ndarray,
    *,
    metric: Literal["f1", "pr_auc"],
    rng: np.random.Generator,
    num_resamples: int = 1000,
) -> Difference:
    """Bootstrap the difference of a score between two models over blocks of rows.

    Args:
        model: The candidate.
        other: What it is compared with, usually the champion.
        label_N: True, or not zero, where the row is positive.
        block_N: Which block each row belongs to; see `time_blocks`. Groups of a labelled table are blocks as they are.
        metric: `f1` at each model's own threshold, or `pr_auc`.
        rng: Where the draws come from.
        num_resamples: Draws. Draws without a positive row say nothing and are left out.
    """
    is_positive_N = checked_labels(model.score_N, label_N)
    checked_labels(other.score_N, label_N)
    names, block_N = np.unique(block_N, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"all {len(label_N)} rows are in one block, but a bootstrap needs at least 2; make them shorter"
        )
    if not is_positive_N.any():
        raise ValueError(f"none of {len(label_N)} rows is positive: {metric} says nothing about them")
    count_RG = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=num_resamples)
    has_positive_R = count_RG @ np.bincount(block_N, weights=is_positive_N) > 0
    count_RG = np.vstack([np.ones_like(count_RG[:1]), count_RG[has_positive_R]])  # the first is all rows as they are
    value = _f1 if metric == "f1" else _pr_auc
    difference_R = value(model, is_positive_N, block_N, count_RG) - value(other, is_positive_N, block_N, count_RG)
    drawn_R = difference_R[1:]
    low, high = np.quantile(drawn_R, [0.025, 0.975])
    return Difference(
        metric=metric,
        estimate=float(difference_R[0]),
        low=float(low),
        high=float(high),
        share_better=float(np.mean((drawn_R > 0) + 0.5 * (drawn_R == 0))),
    )


def time_blocks(t_utc_ns_N: np.ndarray, vehicle_N: np.ndarray, *, length_s: float) -> np.ndarray:
    """Number the blocks of `length_s` that rows lie in; blocks of two vehicles are different.

    A block should be longer than anything that makes neighbours alike: a window, an event, better a day.

    Example:
        >>> time_blocks(np.array([0, 5, 12, 5]) * 10**9, np.array(["a", "a", "a", "b"]), length_s=10)
        array([0, 0, 1, 2])
    """
    _, vehicle_of_N = np.unique(vehicle_N, return_inverse=True)
    slot_N = (t_utc_ns_N - t_utc_ns_N.min(initial=0)) // round(length_s * 1e9)
    _, block_N = np.unique(np.stack([vehicle_of_N, slot_N]), axis=1, return_inverse=True)
    return np.asarray(block_N)


def _f1(judged: Judged, is_positive_N: np.ndarray, block_N: np.ndarray, count_RG: np.ndarray) -> np.ndarray:
    is_called_N = judged.score_N >= judged.threshold
    hits_R = count_RG @ np.bincount(block_N, weights=is_called_N & is_positive_N, minlength=count_RG.shape[1])
    called_and_positive_R = count_RG @ np.bincount(
        block_N, weights=is_called_N.astype(float) + is_positive_N, minlength=count_RG.shape[1]
    )
    return np.asarray(2 * hits_R / called_and_positive_R)


def _pr_auc(judged: Judged, is_positive_N: np.ndarray, block_N: np.ndarray, count_RG: np.ndarray) -> np.ndarray:
    return np.array(
        [average_precision_score(is_positive_N, judged.score_N, sample_weight=count_G[block_N]) for count_G in count_RG]
    )
