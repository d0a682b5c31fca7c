import numpy as np
import pytest

from pipelines.evaluate.bootstrap import Judged, paired_difference, time_blocks
from pipelines.evaluate.rows import score_rows


@pytest.fixture
def labels():
    """Labels of 40 blocks of 25 rows; a third of the blocks has a run of positives."""
    label_GN = np.zeros((40, 25), dtype=bool)
    label_GN[::3, 5:15] = True
    return label_GN.ravel(), np.repeat(np.arange(40), 25)


def judged(label_N, noise, seed):
    return Judged(score_N=label_N + np.random.default_rng(seed).normal(0, noise, len(label_N)), threshold=0.5)


def difference(model, other, labels, metric, **changes):
    return paired_difference(
        model, other, *labels, metric=metric, rng=np.random.default_rng(0), **{"num_resamples": 200, **changes}
    )


@pytest.mark.parametrize("metric", ["f1", "pr_auc"])
def test_the_estimate_is_the_difference_on_all_rows(labels, metric):
    model, other = judged(labels[0], 0.3, seed=1), judged(labels[0], 0.6, seed=2)

    result = difference(model, other, labels, metric)

    scores = [score_rows(each.score_N, labels[0], threshold=0.5).to_scores()[metric] for each in (model, other)]
    assert result.estimate == pytest.approx(scores[0] - scores[1])


@pytest.mark.parametrize("metric", ["f1", "pr_auc"])
def test_a_clearly_better_model_has_an_interval_above_zero(labels, metric):
    result = difference(judged(labels[0], 0.1, seed=1), judged(labels[0], 0.8, seed=2), labels, metric)

    assert 0 < result.low < result.estimate < result.high
    assert result.share_better == 1.0


@pytest.mark.parametrize("metric", ["f1", "pr_auc"])
def test_a_model_does_not_differ_from_itself(labels, metric):
    model = judged(labels[0], 0.5, seed=1)

    result = difference(model, model, labels, metric)

    assert result.low == result.estimate == result.high == 0
    assert result.share_better == 0.5


def test_equally_good_models_are_within_each_others_luck(labels):
    covers = []
    for seed in range(20):
        pair = judged(labels[0], 0.5, seed=seed), judged(labels[0], 0.5, seed=100 + seed)
        result = difference(*pair, labels, "f1")
        covers.append(result.low <= 0 <= result.high)

    assert np.mean(covers) >= 0.8


def test_blocks_that_stand_and_fall_together_widen_the_interval(labels):
    label_N, block_N = labels
    fails_N = np.random.default_rng(3).random(40)[block_N] < 0.3
    model = Judged(score_N=np.where(fails_N, ~label_N, label_N).astype(float), threshold=0.5)
    other = Judged(score_N=label_N.astype(float), threshold=0.5)

    by_block = difference(model, other, (label_N, block_N), "f1")
    by_row = difference(model, other, (label_N, np.arange(len(label_N))), "f1")

    assert by_block.high - by_block.low > 1.5 * (by_row.high - by_row.low)


def test_the_same_seed_gives_the_same_interval(labels):
    pair = judged(labels[0], 0.3, seed=1), judged(labels[0], 0.4, seed=2)

    assert difference(*pair, labels, "f1") == difference(*pair, labels, "f1")


def test_one_block_is_refused(labels):
    model = judged(labels[0], 0.3, seed=1)

    with pytest.raises(ValueError, match="all 1000 rows are in one block"):
        difference(model, model, (labels[0], np.zeros(1000)), "f1")


def test_rows_without_positives_are_refused(labels):
    model = judged(labels[0], 0.3, seed=1)

    with pytest.raises(ValueError, match="none of 1000 rows is positive"):
        difference(model, model, (np.zeros(1000), labels[1]), "f1")


def test_blocks_follow_time_and_vehicle():
    t_utc_ns_N = np.array([0, 1, 3600, 3601, 0]) * 10**9

    block_N = time_blocks(t_utc_ns_N, np.array(["a", "a", "a", "a", "b"]), length_s=3600)

    assert block_N[0] == block_N[1] != block_N[2] == block_N[3]
    assert block_N[4] not in block_N[:4]
