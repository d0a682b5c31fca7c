import numpy as np
import pytest

T_NS = 1_767_589_200 * 10**9 + np.arange(1000, dtype=np.int64) * 10**9


def pressures(seed):
    """A brake pipe that is fed from its reservoir."""
    reservoir_bar = np.random.default_rng(seed).normal(9.0, 0.3, size=1000)
    return {"t_utc_ns": T_NS, "pipe_bar": reservoir_bar - 4.0, "reservoir_bar": reservoir_bar}


@pytest.mark.parametrize("seed", range(3))
def test_a_pipe_above_its_reservoir_contradicts_it(judge, seed):
    columns = pressures(seed)
    columns["pipe_bar"][100:120] += 4.5
    columns["pipe_bar"][110] += 2.0

    rule = {"column_A": "pipe_bar", "column_B": "reservoir_bar", "max_difference": 0.3}
    check = judge("expect_column_pair_to_agree", columns, **rule)

    assert not check.passed
    assert check.value == 0.98
    assert check.examples[0].endswith("at 2026-01-05T05:01:50.000Z")
    assert judge("expect_column_pair_to_agree", columns, mostly=0.98, **rule).passed


def test_a_limit_that_is_not_there_is_told_as_none(judge):
    check = judge(
        "expect_column_pair_to_agree", pressures(0), column_A="pipe_bar", column_B="reservoir_bar", max_difference=0
    )

    assert check.expected == "pipe_bar − reservoir_bar is between no limit and 0 in at least 100 % of the rows."


def test_rows_in_which_one_is_missing_are_not_judged(judge):
    columns = pressures(0)
    columns["pipe_bar"][:999] = np.nan

    check = judge(
        "expect_column_pair_to_agree", columns, column_A="pipe_bar", column_B="reservoir_bar", max_difference=-3.9
    )

    assert check.value == 1.0


def test_two_that_are_never_there_together_say_nothing(judge):
    columns = pressures(0) | {"pipe_bar": np.full(1000, np.nan)}
    rule = {"column_A": "pipe_bar", "column_B": "reservoir_bar", "max_difference": 0.3}

    assert not judge("expect_column_pair_to_agree", columns, **rule).passed
    assert judge("expect_column_pair_to_agree", columns, allow_absent=True, **rule).passed


@pytest.mark.parametrize("seed", range(3))
def test_the_uncertainty_of_the_position_is_judged_at_a_quantile(judge, seed):
    sigma_m = np.abs(np.random.default_rng(seed).normal(1.0, 0.1, size=1000))
    sigma_m[500:530] = 40.0
    columns = {"t_utc_ns": T_NS, "position_sigma_m": sigma_m}

    assert judge("expect_position_uncertainty_to_be_at_most", columns, max_m=2, quantile=0.95).passed
    check = judge("expect_position_uncertainty_to_be_at_most", columns, max_m=2, quantile=0.98)
    assert not check.passed
    assert check.observed == "40 m"


def test_a_batch_without_a_position_fails_unless_that_is_granted(judge):
    columns = {"t_utc_ns": T_NS, "position_sigma_m": np.full(1000, np.nan)}

    assert not judge("expect_position_uncertainty_to_be_at_most", columns, max_m=2).passed
    assert judge("expect_position_uncertainty_to_be_at_most", columns, max_m=2, allow_absent=True).passed
