import numpy as np
import pytest

from pipelines.clocks.fit import fit_pairs

SECOND_NS = 10**9
START_NS = 1_770_000_000 * SECOND_NS
SIGMA_NS = 1e6


def drifting(rng, utc_ns_X, *, wander_ppb, drift_ppm=300.0):
    """What a clock shows whose frequency takes a random walk."""
    step_s_X = np.diff(utc_ns_X, prepend=utc_ns_X[0]) * 1e-9
    frequency_X = drift_ppm * 1e3 + np.cumsum(rng.normal(0, wander_ppb * np.sqrt(step_s_X)))
    return utc_ns_X - np.rint(np.cumsum(frequency_X * step_s_X)).astype(np.int64)


def read_every(period_s, num):
    return START_NS + np.arange(num) * round(period_s * 1e9)


def fit(dev_ns_X, utc_ns_X, sigma_ns=SIGMA_NS):
    return fit_pairs("node", dev_ns_X, utc_ns_X, np.full(len(dev_ns_X), sigma_ns))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("in_a_row", [1, 3])
def test_pairs_far_from_all_around_them_do_not_move_the_map_and_are_rejected(seed, in_a_row):
    rng = np.random.default_rng(seed)
    utc_ns_X = read_every(60, 300)
    dev_ns_X = drifting(rng, utc_ns_X, wander_ppb=2.0) + np.rint(rng.normal(0, SIGMA_NS, 300)).astype(np.int64)
    first = int(rng.integers(10, 280))
    stray = np.arange(first, first + in_a_row)
    spoilt_ns_X = dev_ns_X.copy()
    spoilt_ns_X[stray] += rng.choice([-1, 1]) * 5 * SECOND_NS

    found = fit(spoilt_ns_X, utc_ns_X)

    rest = np.setdiff1d(np.arange(300), stray)
    moved_ns = found.to_utc(dev_ns_X)[0] - fit(dev_ns_X[rest], utc_ns_X[rest]).to_utc(dev_ns_X)[0]
    assert np.abs(moved_ns).max() < SIGMA_NS / 10
    assert found.residuals.num_rejected == in_a_row
    assert found.steps == ()


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_was_set_is_followed_and_not_taken_for_strays(seed):
    rng = np.random.default_rng(seed)
    utc_ns_X = read_every(60, 200)
    dev_ns_X = drifting(rng, utc_ns_X, wander_ppb=2.0)
    dev_ns_X[100:] += 5 * SECOND_NS

    found = fit(dev_ns_X, utc_ns_X)

    assert [round(step.jump_ns / SECOND_NS) for step in found.steps] == [5]
    assert found.residuals.num_rejected == 0
    assert np.abs(found.to_utc(dev_ns_X)[0] - utc_ns_X).max() < SIGMA_NS


@pytest.mark.parametrize("wander_ppb", [20.0, 2_000.0])
def test_a_pair_left_out_of_a_few_lies_within_two_sigma_nine_times_of_ten(wander_ppb):
    """As few as a node has that sees the sky for two seconds an hour."""
    num_within = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        utc_ns_X = START_NS + (np.repeat([0, 3_000, 6_000, 9_000], 2) + np.tile([0, 1], 4)) * SECOND_NS
        dev_ns_X = drifting(rng, utc_ns_X, wander_ppb=wander_ppb)
        dev_ns_X += np.rint(rng.normal(0, SIGMA_NS, len(dev_ns_X))).astype(np.int64)
        out = int(rng.integers(len(dev_ns_X)))
        rest = np.arange(len(dev_ns_X)) != out

        utc_ns, sigma_ns = fit(dev_ns_X[rest], utc_ns_X[rest]).to_utc(dev_ns_X[[out]])

        miss_ns = utc_ns[0] - utc_ns_X[out]
        num_within += abs(miss_ns) <= 2 * np.hypot(sigma_ns[0], SIGMA_NS)

    assert num_within >= 0.9 * 60
