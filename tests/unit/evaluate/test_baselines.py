import numpy as np
import pytest

from pipelines.evaluate.baselines import (
    highest_level,
    last_value,
    logistic_regression,
    one_feature,
    table_baselines,
    window_baselines,
    z_score,
)
from pipelines.evaluate.rows import score_rows


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_a_usual_window_has_a_last_value_score_of_about_one(rng):
    train_NLC = rng.normal(0, 3, size=(500, 20, 2)).cumsum(axis=1)

    score_N = last_value(train_NLC, train_NLC, targets=(0, 1))

    assert score_N.mean() == pytest.approx(1.0)


def test_last_value_notices_a_target_that_moves_away(rng):
    train_NLC = rng.normal(0, 1, size=(100, 20, 2))
    x_NLC = rng.normal(0, 1, size=(2, 20, 2))
    x_NLC[1, :, 0] += np.linspace(0, 50, 20)

    usual, moving = last_value(train_NLC, x_NLC, targets=(0,))

    assert moving > 20 * usual


def test_last_value_does_not_look_at_other_channels(rng):
    train_NLC = rng.normal(0, 1, size=(100, 20, 2))
    changed_NLC = train_NLC.copy()
    changed_NLC[:, :, 1] *= 100

    assert np.array_equal(
        last_value(train_NLC, train_NLC, targets=(0,)), last_value(train_NLC, changed_NLC, targets=(0,))
    )


def test_a_target_that_never_moved_in_training_still_has_a_score():
    still_NLC = np.zeros((3, 5, 1), dtype=np.float32)

    assert np.array_equal(last_value(still_NLC, still_NLC, targets=(0,)), np.zeros(3))


def test_the_highest_level_is_that_of_its_channel(rng):
    x_NLC = rng.normal(size=(4, 6, 3))

    assert np.array_equal(highest_level(x_NLC, channel=2), x_NLC[:, :, 2].max(axis=1))


def test_z_score_is_the_same_in_any_unit(rng):
    train_NF, x_NF = rng.normal(size=(50, 3)), rng.normal(size=(9, 3))

    assert z_score(train_NF * 7 + 3, x_NF * 7 + 3) == pytest.approx(z_score(train_NF, x_NF))


def test_z_score_without_any_varying_feature_is_zero():
    assert np.array_equal(z_score(np.ones((4, 2)), np.zeros((3, 2))), np.zeros(3))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_feature_is_found_in_either_direction(rng, sign):
    label_N = rng.random(300) < 0.2
    x_NF = rng.normal(size=(300, 5))
    x_NF[:, 3] += sign * 8 * label_N

    score_N = one_feature(x_NF, label_N, x_NF)

    assert np.array_equal(score_N, sign * x_NF[:, 3])


def test_logistic_regression_separates_what_a_line_can(rng):
    label_N = rng.random(400) < 0.3
    x_NF = rng.normal(size=(400, 2)).astype(np.float32)
    x_NF[:, 0] += 6 * label_N

    score_N = logistic_regression(x_NF, label_N.astype(np.float32), x_NF)

    assert score_rows(score_N, label_N, threshold=0.5).f1 > 0.98


def test_all_window_baselines_have_one_finite_score_a_window(rng):
    train_NLC, x_NLC = rng.normal(size=(30, 10, 3)), rng.normal(size=(7, 10, 3))

    scores = window_baselines(train_NLC, x_NLC, targets=(1,))

    assert set(scores) == {"last_value", "highest_level", "z_score"}
    assert all(score_N.shape == (7,) and np.isfinite(score_N).all() for score_N in scores.values())


def test_all_table_baselines_have_one_finite_score_a_row(rng):
    train_NF, x_NF = rng.normal(size=(60, 3)), rng.normal(size=(7, 3))

    scores = table_baselines(train_NF, np.arange(60) % 4 == 0, x_NF)

    assert set(scores) == {"one_feature", "z_score", "logistic_regression"}
    assert all(score_N.shape == (7,) and np.isfinite(score_N).all() for score_N in scores.values())
