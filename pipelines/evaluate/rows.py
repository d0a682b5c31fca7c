"""Scores of rows or windows against their labels.

Shape suffixes: N = rows, K = distinct scores.
"""

from dataclasses import asdict, dataclass

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve


@dataclass(frozen=True, kw_only=True, slots=True)
class RowScores:
    """How well a score separates positive rows from the others. A row is called positive from `threshold` on."""

    threshold: float
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    pr_auc: float
    """Average precision, which needs no threshold; NaN if no row is positive. The share of positives is mere chance."""

    @property
    def precision(self) -> float:
        """Share of the rows called positive that are; 0 if none was called so, NaN if none is positive."""
        return self._measured(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float:
        """Share of the positive rows that were called so; NaN if there are none."""
        return self._measured(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if no positive row was found, NaN if there are none."""
        found = 2 * self.true_positives
        return self._measured(found, found + self.false_positives + self.false_negatives)

    def _measured(self, part: float, whole: float) -> float:
        """A share, where there is something to find; without positive rows nothing can be said."""
        if not self.true_positives + self.false_negatives:
            return float("nan")
        return part / whole if whole else 0.0

    def to_scores(self) -> dict[str, float]:
        """All of it as named numbers, as a report has them."""
        counts = {name: float(value) for name, value in asdict(self).items()}
        return {"f1": self.f1, "precision": self.precision, "recall": self.recall, **counts}


def score_rows(score_N: np.ndarray, label_N: np.ndarray, *, threshold: float) -> RowScores:
    """Compare scores with labels.

    Args:
        score_N: Finite; larger is more likely positive.
        label_N: True, or not zero, where the row is positive.
        threshold: Smallest score that is called positive; it was chosen on other rows than these.

    Example:
        >>> result = score_rows(np.array([0.1, 0.4, 0.6, 0.9]), np.array([0, 1, 0, 1]), threshold=0.5)
        >>> result.precision, result.recall, result.f1
        (0.5, 0.5, 0.5)
    """
    is_positive_N = checked_labels(score_N, label_N)
    is_called_N = score_N >= threshold
    return RowScores(
        threshold=float(threshold),
        true_positives=int((is_called_N & is_positive_N).sum()),
        false_positives=int((is_called_N & ~is_positive_N).sum()),
        false_negatives=int((~is_called_N & is_positive_N).sum()),
        true_negatives=int((~is_called_N & ~is_positive_N).sum()),
        pr_auc=float(average_precision_score(is_positive_N, score_N)) if is_positive_N.any() else float("nan"),
    )


def best_f1_threshold(score_N: np.ndarray, label_N: np.ndarray) -> float:
    """Threshold with the largest F1 on these rows: the middle between the last score called positive and the next.

    With few positive rows the best threshold is mostly luck; a probability that is calibrated does as well at one half
    (the best threshold is half the best F1: Lipton et al. 2014, "Optimal thresholding of classifiers").

    Example:
        >>> best_f1_threshold(np.array([0.0, 0.25, 0.75, 1.0]), np.array([0, 0, 1, 1]))
        0.5
    """
    is_positive_N = checked_labels(score_N, label_N)
    if not is_positive_N.any():
        raise ValueError(f"none of {len(score_N)} rows is positive, but F1 needs at least one; use a quantile instead")
    precision_K, recall_K, threshold_K = precision_recall_curve(is_positive_N, score_N)
    precision_K, recall_K = precision_K[:-1], recall_K[:-1]  # the last point calls nothing positive
    f1_K = 2 * precision_K * recall_K / np.maximum(precision_K + recall_K, np.finfo(float).tiny)
    best = int(np.argmax(f1_K))
    return float(threshold_K[best] if best == 0 else (threshold_K[best - 1] + threshold_K[best]) / 2)


def checked_labels(score_N: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Labels as booleans, once it is sure that scores and labels belong together.

    Raises:
        ValueError: Their numbers differ, there are none, or a score is not finite.
    """
    if score_N.shape != label_N.shape or score_N.ndim != 1 or len(score_N) == 0:
        raise ValueError(f"{score_N.shape} scores and {label_N.shape} labels, but there must be one of each a row")
    if num_bad := int((~np.isfinite(score_N)).sum()):
        raise ValueError(f"{num_bad} of {len(score_N)} scores are not finite, first at row {_first_bad(score_N)}")
    return label_N.astype(bool)


def _first_bad(score_N: np.ndarray) -> int:
    return int(np.flatnonzero(~np.isfinite(score_N))[0])
