"""Figures for MLflow and for reports. They are drawn without pyplot, which keeps every figure of a process alive.

Shape suffixes: N = rows or windows, L = samples of a window, C = channels.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import average_precision_score, precision_recall_curve

_ALARM = "tab:red"


def loss_curve(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> Figure:
    """Draw losses over optimiser steps on a logarithmic axis.

    Args:
        curves: Steps and losses by name, for example `train_loss` and `validation_loss`.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, (steps, losses) in curves.items():
        axes.plot(steps, losses, label=name.replace("_", " "), marker="." if len(steps) < 50 else "")
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend()
    return figure


def score_distribution(score_N: np.ndarray, label_N: np.ndarray, *, threshold: float) -> Figure:
    """Draw how often each score occurs, positive rows apart from the others.

    Args:
        score_N: Scores; if none is negative and they span more than two decades, the axis is logarithmic.
        label_N: True, or not zero, where the row is positive.
        threshold: Where an alarm begins.
    """
    is_positive_N = label_N.astype(bool)
    low, high = float(score_N.min()), float(score_N.max())
    is_wide = low > 0 and high > 100 * low
    edges = np.geomspace(low, high, 51) if is_wide else np.linspace(low, high if high > low else low + 1, 51)
    bins = edges.tolist()
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.hist(score_N[~is_positive_N], bins=bins, alpha=0.6, label=f"others ({(~is_positive_N).sum():,})")
    axes.hist(score_N[is_positive_N], bins=bins, alpha=0.6, color=_ALARM, label=f"positive ({is_positive_N.sum():,})")
    axes.axvline(threshold, color="black", linestyle="--", label=f"threshold {threshold:.3g}")
    axes.set(xlabel="score", ylabel="rows", yscale="log", xscale="log" if is_wide else "linear")
    axes.legend()
    return figure


def precision_recall(scores: Mapping[str, np.ndarray], label_N: np.ndarray) -> Figure:
    """Draw precision over recall for a model and its rivals.

    Args:
        scores: ``score_N`` by name; the first is the model and is drawn thicker.
        label_N: True, or not zero, where the row is positive; at least one is.
    """
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    for rank, (name, score_N) in enumerate(scores.items()):
        precision, recall, _ = precision_recall_curve(label_N, score_N)
        area = average_precision_score(label_N, score_N)
        label = f"{name.replace('_', ' ')} ({area:.3f})"
        axes.step(recall, precision, where="post", label=label, linewidth=2.5 if rank == 0 else 1.2)
    chance = float(np.mean(label_N.astype(bool)))
    axes.axhline(chance, color="grey", linestyle=":", label=f"chance ({chance:.3f})")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.01))
    axes.legend(title="average precision")
    return figure


def marked_window(
    x_LC: np.ndarray, is_anomaly_L: np.ndarray, *, channels: Sequence[str], rate_hz: float, title: str = ""
) -> Figure:
    """Draw the channels of one window under each other, its anomaly shaded.

    Args:
        x_LC: Samples in the units of the channels.
        is_anomaly_L: Samples that are anomalous.
        channels: Names along the last axis of `x_LC`.
        rate_hz: Samples a second.
        title: What window it is.
    """
    t_s_L = np.arange(len(x_LC)) / rate_hz
    figure = Figure(figsize=(8, 1 + 1.4 * len(channels)), layout="constrained")
    rows = figure.subplots(len(channels), sharex=True, squeeze=False)[:, 0]
    for c, (axes, channel) in enumerate(zip(rows, channels, strict=True)):
        axes.plot(t_s_L, x_LC[:, c], linewidth=1)
        for start, end in _runs(is_anomaly_L):
            axes.axvspan(start / rate_hz, end / rate_hz, color=_ALARM, alpha=0.2, linewidth=0)
        axes.set_ylabel(channel, rotation=0, ha="right", va="center")
    rows[-1].set_xlabel("seconds since the start of the window")
    figure.suptitle(title)
    return figure


def _runs(mask_L: np.ndarray) -> list[tuple[int, int]]:
    """Half-open runs of true values.

    Example:
        >>> _runs(np.array([True, True, False, True]))
        [(0, 2), (3, 4)]
    """
    change = np.flatnonzero(np.diff(np.concatenate([[False], mask_L, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in change.reshape(-1, 2)]
