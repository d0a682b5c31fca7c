import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.evaluate.rows import best_f1_threshold, score_rows


def test_the_four_counts_add_up_to_the_rows():
    result = score_rows(np.array([0.9, 0.8, 0.3, 0.2, 0.7]), np.array([1, 0, 1, 0, 1]), threshold=0.7)

    counts = (result.true_positives, result.false_positives, result.false_negatives, result.true_negatives)
    assert counts == (2, 1, 1, 1)
    assert result.precision == result.recall == result.f1 == pytest.approx(2 / 3)


def test_a_score_on_the_threshold_is_positive():
    assert score_rows(np.array([0.5, 0.1]), np.array([True, False]), threshold=0.5).true_positives == 1


def test_perfect_order_has_average_precision_one_at_any_threshold():
    result = score_rows(np.array([3.0, 2.0, 1.0]), np.array([1, 1, 0]), threshold=99.0)

    assert result.pr_auc == 1.0
    assert result.f1 == result.precision == result.recall == 0.0


def test_without_positive_rows_nothing_that_needs_one_is_measured():
    result = score_rows(np.array([0.1, 0.9]), np.zeros(2), threshold=0.5)

    assert np.isnan([result.pr_auc, result.f1, result.precision, result.recall]).all()
    assert result.false_positives == 1


def test_named_scores_have_what_a_gate_may_ask_for():
    scores = score_rows(np.array([0.1, 0.9]), np.array([0, 1]), threshold=0.5).to_scores()

    assert {"f1", "precision", "recall", "pr_auc", "threshold", "false_positives"} <= set(scores)
    assert all(isinstance(value, float) for value in scores.values())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="1 of 3 scores are not finite, first at row 1"):
        score_rows(np.array([0.0, bad, 1.0]), np.zeros(3), threshold=0.5)


def test_scores_and_labels_of_different_rows_are_refused():
    with pytest.raises(ValueError, match="one of each a row"):
        score_rows(np.zeros(3), np.zeros(4), threshold=0.5)


@settings(deadline=None, max_examples=30)  # how fast it is depends on what else the machine does
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=40))
def test_no_other_threshold_has_a_larger_f1(rows):
    score_N, label_N = np.array([row[0] for row in rows]) / 4, np.array([row[1] for row in rows])
    label_N[0] = True

    best = score_rows(score_N, label_N, threshold=best_f1_threshold(score_N, label_N)).f1

    others = [score_rows(score_N, label_N, threshold=threshold).f1 for threshold in np.arange(-0.125, 3.5, 0.25)]
    assert best == pytest.approx(max(others))


def test_the_best_threshold_lies_in_the_middle_of_the_gap():
    assert best_f1_threshold(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1])) == pytest.approx(0.5)


def test_the_best_threshold_needs_a_positive_row():
    with pytest.raises(ValueError, match="none of 3 rows is positive"):
        best_f1_threshold(np.arange(3.0), np.zeros(3))
