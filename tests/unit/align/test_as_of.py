import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from pipelines.align import as_of

INSTANTS = st.lists(st.integers(0, 300), max_size=80).map(sorted)


@given(INSTANTS, INSTANTS, st.integers(0, 40))
def test_it_is_the_backward_join_of_pandas_ties_included(left, right, max_age_ns):
    """The last of several rows at one instant counts, on both sides there may be several."""
    left_ns, right_ns = np.array(left, dtype=np.int64), np.array(right, dtype=np.int64)
    x = np.arange(len(right_ns), dtype=float)

    found, age_s = as_of(right_ns, x, left_ns, max_age_ns=max_age_ns)

    joined = pd.merge_asof(
        pd.DataFrame({"t": left_ns}),
        pd.DataFrame({"t": right_ns, "at": right_ns, "x": x}),
        on="t",
        tolerance=max_age_ns,
    )
    assert np.array_equal(found, joined["x"], equal_nan=True)
    np.testing.assert_allclose(age_s, (joined["t"] - joined["at"]) * 1e-9, rtol=1e-6)


def test_a_missing_reading_is_passed_over_however_often():
    found, age_s = as_of(np.arange(5), np.array([1.0, np.nan, np.nan, 4.0, np.nan]), np.array([0, 2, 4]), max_age_ns=10)

    assert found.tolist() == [1.0, 1.0, 4.0]
    np.testing.assert_allclose(age_s, [0.0, 2e-9, 1e-9], rtol=1e-6)


def test_readings_of_any_number_type_are_joined():
    for dtype in (np.float32, np.int64, np.uint8):
        found, _ = as_of(np.array([1, 2]), np.array([3, 4], dtype=dtype), np.array([2]), max_age_ns=10)

        assert found.tolist() == [4.0]
