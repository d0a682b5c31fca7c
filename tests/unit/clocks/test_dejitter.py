import numpy as np
import pytest

from pipelines.clocks.dejitter import dejitter

START_NS = 1_767_600_000_000_000_000
ROWS = 6_000


def beat(period_ms=100.0, ppm=15.0, rows=ROWS):
    return START_NS + (np.arange(rows) * period_ms * 1e6 * (1 + ppm * 1e-6)).astype(np.int64)


@pytest.mark.parametrize(
    ("delay_ms", "tolerance_ms"),
    [
        (lambda random: random.exponential(2.0, ROWS), 0.15),
        (lambda random: random.uniform(0.0, 4.0, ROWS), 0.15),
        (lambda random: random.normal(0.0, 1.0, ROWS), 0.3),
    ],
    ids=["queue", "poll", "symmetric"],
)
def test_delay_is_taken_out_whatever_its_shape(delay_ms, tolerance_ms):
    true_ns = beat()

    stamped_ns = true_ns + (delay_ms(np.random.default_rng(0)) * 1e6).astype(np.int64)
    corrected = dejitter(stamped_ns, rate_hz=10.0, unit_ns=1)

    assert np.abs(corrected.t_ns_T - true_ns).max() < tolerance_ms * 1e6
    assert not corrected.is_bad_T.any()


def test_gaps_late_stamps_and_late_rows_do_not_shift_the_beat():
    random = np.random.default_rng(1)
    true_ns = np.delete(beat(), slice(2_000, 2_313))
    stamped_ns = true_ns + (random.exponential(1.0, len(true_ns)) * 1e6).astype(np.int64)
    late_stamps = [500, 1_500, 4_000]
    stamped_ns[late_stamps] += 170_000_000
    order = np.r_[0:900, 901:915, 900, 915 : len(true_ns)]  # row 900 is stored 14 rows late

    corrected = dejitter(stamped_ns[order], rate_hz=10.0, unit_ns=1)

    assert np.abs(corrected.t_ns_T - true_ns[order]).max() < 0.5e6
    assert not corrected.is_bad_T.any()


def test_a_stamp_far_from_its_turn_is_wrong():
    stamped_ns = beat()
    stamped_ns[3_000] += 4_321_000_000

    assert np.flatnonzero(dejitter(stamped_ns, rate_hz=10.0, unit_ns=1).is_bad_T).tolist() == [3_000]


def test_rows_without_a_beat_stay_as_they_are():
    stamped_ns = START_NS + np.sort(np.random.default_rng(2).integers(0, 600 * 10**9, size=ROWS))

    corrected = dejitter(stamped_ns, rate_hz=10.0, unit_ns=1)

    assert (corrected.t_ns_T == stamped_ns).all()
