"""What a score without a network would have been; a network that does no better is not worth its upkeep.

Every baseline learns from the training examples alone and returns one score an example, larger = more unusual, so that
it is thresholded and judged exactly as a model is.

Shape suffixes: N = examples, L = samples per window, C = channels, F = features of a row.
"""

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def window_baselines(train_NLC: np.ndarray, x_NLC: np.ndarray, *, targets: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the scores of all baselines for windows of recordings, by name.

    Args:
        train_NLC: Training windows, healthy as far as is known.
        x_NLC: Windows to score.
        targets: Positions of the channels whose error is a model's score.
    """
    return {
        "last_value": last_value(train_NLC, x_NLC, targets=targets),
        "highest_level": highest_level(x_NLC, channel=targets[0]),
        "z_score": z_score(train_NLC.mean(axis=1), x_NLC.mean(axis=1)),
    }


def table_baselines(train_NF: np.ndarray, train_label_N: np.ndarray, x_NF: np.ndarray) -> dict[str, np.ndarray]:
    """Return the scores of all baselines for rows of a labelled table, by name.

    Args:
        train_NF: Training rows.
        train_label_N: True, or not zero, where a training row is positive.
        x_NF: Rows to score.
    """
    return {
        "one_feature": one_feature(train_NF, train_label_N, x_NF),
        "z_score": z_score(train_NF, x_NF),
        "logistic_regression": logistic_regression(train_NF, train_label_N, x_NF),
    }


def last_value(train_NLC: np.ndarray, x_NLC: np.ndarray, *, targets: Sequence[int]) -> np.ndarray:
    """Error of the forecast that every target stays as it was when the window began.

    Mean square over the window, each target in units of what is usual in training, so that 1 is a usual window.
    """
    usual_C = np.maximum(_squared_change(train_NLC[:, :, targets]).mean(axis=0), np.finfo(np.float32).tiny)
    return np.asarray((_squared_change(x_NLC[:, :, targets]) / usual_C).mean(axis=1))


def highest_level(x_NLC: np.ndarray, *, channel: int) -> np.ndarray:
    """Largest reading of one channel in the window, in its own unit: the threshold alarm that depots know.

    Example:
        >>> highest_level(np.array([[[60.0], [80.0], [70.0]]]), channel=0)
        array([80.])
    """
    return np.asarray(x_NLC[:, :, channel].max(axis=1))


def z_score(train_NF: np.ndarray, x_NF: np.ndarray) -> np.ndarray:
    """Largest distance of any feature from its training mean, in standard deviations; constant features are left out.

    Example:
        >>> z_score(np.array([[0.0, 5.0], [2.0, 5.0]]), np.array([[1.0, 9.0], [4.0, 5.0]]))
        array([0., 3.])
    """
    std_F = train_NF.std(axis=0, dtype=np.float64)
    varies_F = std_F > 0
    if not varies_F.any():
        return np.zeros(len(x_NF))
    mean_F = train_NF.mean(axis=0, dtype=np.float64)
    return np.asarray((np.abs(x_NF - mean_F)[:, varies_F] / std_F[varies_F]).max(axis=1))


def one_feature(train_NF: np.ndarray, train_label_N: np.ndarray, x_NF: np.ndarray) -> np.ndarray:
    """The feature, or its negative, that separates the training rows best by average precision."""
    signed = [(f, sign) for f in range(train_NF.shape[1]) for sign in (1.0, -1.0)]
    quality = [average_precision_score(train_label_N, sign * train_NF[:, f]) for f, sign in signed]
    feature, sign = signed[int(np.argmax(quality))]
    return np.asarray(sign * x_NF[:, feature])


def logistic_regression(train_NF: np.ndarray, train_label_N: np.ndarray, x_NF: np.ndarray) -> np.ndarray:
    """Probability of the positive class by logistic regression on standardised features."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=10_000))
    model.fit(train_NF.astype(np.float64), train_label_N.astype(bool))
    return np.asarray(model.predict_proba(x_NF.astype(np.float64))[:, 1])


def _squared_change(x_NLC: np.ndarray) -> np.ndarray:
    """Mean squared change since the first sample of each window, a channel."""
    change_NLC = x_NLC - x_NLC[:, :1]
    return np.asarray(np.square(change_NLC).mean(axis=1))
