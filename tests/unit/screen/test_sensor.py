import numpy as np
import polars as pl
import pytest

from pipelines.channels import BUNDLE_SENSORS
from pipelines.clocks.row_times import RowTimes
from pipelines.ingest.reader import Encoding, SensorRows
from pipelines.screen import REASONS, Reason, out_of_order, screen_sensor

SECOND = 10**9


def pneu(**channels):
    return SensorRows(
        sensor="pneu",
        rows=pl.DataFrame({"row": range(len(channels["res_bar"])), **channels}),
        channels=BUNDLE_SENSORS["pneu"],
        clock_id="brake",
        encoding=Encoding.EPOCH_NS,
        nominal_rate_hz=10.0,
    )


def times(t_s, faulty=()):
    utc_ns_T = (np.asarray(t_s, dtype=float) * SECOND).astype(np.int64)
    fault_T = np.isin(np.arange(len(utc_ns_T)), faulty).astype(np.uint8)
    good = np.flatnonzero(fault_T == 0)
    return RowTimes(
        utc_ns_T=utc_ns_T,
        sigma_ns_T=np.zeros(len(utc_ns_T)),
        fault_T=fault_T,
        used=good[np.argsort(utc_ns_T[good], kind="stable")],
    )


def reasons(screened):
    return [str(REASONS[code - 1]) if code else "" for code in screened.value_fault_S.tolist()]


@pytest.fixture
def screened():
    """Six rows, of which the second one came late and the last one has no place in time."""
    sensor = pneu(
        res_bar=[9.0, 9.1, 99.0, None, 9.0, -5.0],
        pipe_bar=[5.0, 5.0, None, 77.0, 5.0, 5.0],
        comp_on=[0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    )
    return screen_sensor(sensor, times([0.0, 0.25, 0.1, 0.2, 0.3, 0.0], faulty=[5]))


def test_rows_are_by_instant_without_the_readings_that_are_not_believed(screened):
    assert (screened.track.t_ns_T / SECOND).tolist() == [0.0, 0.1, 0.2, 0.25, 0.3]
    assert screened.track.values["res_bar"].tolist() == pytest.approx([9.0, np.nan, np.nan, 9.1, 9.0], nan_ok=True)


def test_a_row_has_the_strongest_reason_of_its_readings_in_stored_order(screened):
    assert reasons(screened) == ["", "", "missing", "missing", "", "out_of_range"]


def test_readings_of_used_rows_are_counted_by_channel_and_reason(screened):
    assert screened.counts == {
        "res_bar": {"missing": 1, "out_of_range": 1},
        "pipe_bar": {"missing": 1, "out_of_range": 1},
    }


def test_a_reading_keeps_its_first_reason(screened):
    again = screened.without("res_bar", np.array([True, True, False, False, False]), Reason.CONTRADICTION)

    assert again.counts["res_bar"] == {"missing": 1, "out_of_range": 1, "contradiction": 1}
    assert np.isnan(again.track.values["res_bar"][:2]).all()
    assert screened.counts["res_bar"] == {"missing": 1, "out_of_range": 1}
    assert screened.track.values["res_bar"][0] == 9.0


def test_texts_of_events_are_kept_as_they_are():
    sensor = SensorRows(
        sensor="evt",
        rows=pl.DataFrame({"row": [0, 1], "kind": ["balise", "door_open"], "ref": ["B1", None]}),
        channels=BUNDLE_SENSORS["evt"],
        clock_id="control",
        encoding=Encoding.EPOCH_NS,
        nominal_rate_hz=None,
    )

    screened = screen_sensor(sensor, times([1.0, 2.0]))

    assert screened.track.values["ref"].tolist() == ["B1", ""]
    assert screened.value_fault_S.tolist() == [0, 0]


def test_a_row_that_was_stored_after_a_later_one_is_out_of_order():
    assert out_of_order(times([0.0, 1.0, 3.0, 2.0, 4.0, 99.0, 5.0], faulty=[5])).tolist() == [
        *[False] * 3,
        True,
        *[False] * 3,
    ]
