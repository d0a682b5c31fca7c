import numpy as np
import pytest

from pipelines.align import Track, make_grid
from pipelines.errors import RecordingError

SECOND = 10**9
START_NS = 1_767_600_000 * SECOND


def track(t_s):
    t_ns_T = START_NS + np.rint(np.asarray(t_s, dtype=float) * SECOND).astype(np.int64)
    return Track(sensor="s", t_ns_T=t_ns_T, values={}, channels=(), rate_hz=10.0)


def test_the_grid_covers_all_rows_on_whole_periods():
    made = make_grid([track([0.3, 7.2]), track([-2.5])], rate_hz=0.5)

    assert (made.first_ns - START_NS) / SECOND == -2.0
    assert (made.t_ns_G[-1] - START_NS) / SECOND == 8.0
    assert made.period_ns == 2 * SECOND


def test_clocks_that_are_years_apart_are_refused_by_name_of_the_fault():
    with pytest.raises(RecordingError, match="differ by years"):
        make_grid([track([0.0]), track([1e8])], rate_hz=1.0)


def test_no_rows_give_no_grid():
    assert make_grid([track([])], rate_hz=1.0).length == 0
