import io

import numpy as np
import pytest

from pipelines.evaluate.plots import loss_curve, marked_window, precision_recall, score_distribution


@pytest.fixture
def scored():
    rng = np.random.default_rng(0)
    label_N = rng.random(300) < 0.1
    return np.exp(rng.normal(0, 2, 300)) + 5 * label_N, label_N


def drawn(figure):
    """What the figure shows, once it has been rendered without a warning."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    return figure.axes


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_every_loss_has_its_line():
    curves = {"train_loss": ([1, 2, 3], [1.0, 0.5, 0.2]), "validation_loss": ([3], [0.3])}

    (axes,) = drawn(loss_curve(curves))

    assert legend(axes) == ["train loss", "validation loss"]
    assert axes.lines[0].get_ydata().tolist() == [1.0, 0.5, 0.2]


def test_the_score_distribution_shows_every_row_and_the_threshold(scored):
    (axes,) = drawn(score_distribution(*scored, threshold=4.0))

    assert sum(patch.get_height() for patch in axes.patches) == 300
    assert axes.lines[0].get_xdata()[0] == 4.0


@pytest.mark.parametrize(("score_N", "scale"), [(np.array([0.01, 5.0]), "log"), (np.array([0.0, 5.0]), "linear")])
def test_the_score_axis_is_logarithmic_only_where_it_can_be(score_N, scale):
    (axes,) = drawn(score_distribution(score_N, np.array([0, 1]), threshold=1.0))

    assert axes.get_xscale() == scale


def test_scores_that_are_all_equal_can_be_drawn():
    figure = score_distribution(np.full(5, 0.5), np.zeros(5), threshold=0.5)

    drawn(figure)
    assert figure.axes[0].get_xlim()[0] < 0.5 < figure.axes[0].get_xlim()[1]


def test_the_precision_recall_plot_names_model_and_baselines(scored):
    score_N, label_N = scored

    (axes,) = drawn(precision_recall({"model": label_N + 0.0, "last_value": score_N}, label_N))

    assert legend(axes)[0] == "model (1.000)"
    assert legend(axes)[1].startswith("last value (0.")
    assert legend(axes)[2] == f"chance ({label_N.mean():.3f})"


def test_the_anomaly_of_a_window_is_shaded_in_every_channel():
    is_anomaly_L = np.zeros(60, dtype=bool)
    is_anomaly_L[20:40] = True

    figure = marked_window(np.zeros((60, 2)), is_anomaly_L, channels=("a_bar", "b_c"), rate_hz=2.0, title="vehicle 07")

    for axes in drawn(figure):
        assert [(patch.get_x(), patch.get_width()) for patch in axes.patches] == [(10.0, 10.0)]
    assert [axes.get_ylabel() for axes in figure.axes] == ["a_bar", "b_c"]
