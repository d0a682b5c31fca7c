"""The rows of one sensor as they are used: by instant, with the readings that are not believed taken out.

Shape suffixes: S = rows of one sensor in stored order, T = those that have a place in time, by instant.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from pipelines.align import Track
from pipelines.channels import Kind
from pipelines.clocks.row_times import RowTimes
from pipelines.ingest.reader import SensorRows
from pipelines.screen.readings import believed, one_by_one, screen
from pipelines.screen.reasons import REASONS, Reason, code


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Screened:
    """Readings of one sensor, and which of them are not believed."""

    track: Track
    num_rows: int
    """Rows of the sensor, used or not."""

    used: np.ndarray
    """Position in stored order of each row of `track`."""

    code_S: dict[str, np.ndarray]
    """By channel: the code of the reason why the reading is not believed, 0 for none. Of rows without a place in time
    only what can be said of a reading by itself is known."""

    @property
    def value_fault_S(self) -> np.ndarray:
        """The code of the strongest reason among the channels of each row; 0 where all of it is believed."""
        fault_S = np.zeros(self.num_rows, dtype=np.uint8)
        for code_S in self.code_S.values():
            is_stronger_S = (code_S != 0) & ((fault_S == 0) | (code_S < fault_S))
            fault_S[is_stronger_S] = code_S[is_stronger_S]
        return fault_S

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Readings of used rows that are not believed, by channel and reason."""
        counted = {
            name: np.bincount(code_S[self.used], minlength=len(REASONS) + 1)[1:].tolist()
            for name, code_S in self.code_S.items()
        }
        return {
            name: {str(reason): count for reason, count in zip(REASONS, counts, strict=True) if count}
            for name, counts in counted.items()
            if any(counts)
        }

    def without(self, channel: str, is_wrong_T: np.ndarray, reason: Reason) -> "Screened":
        """The same with further readings of a channel not believed; an earlier reason of a reading stands."""
        code_S = self.code_S[channel].copy()
        wrong = self.used[is_wrong_T]
        code_S[wrong[code_S[wrong] == 0]] = code(reason)
        x_T = np.where(is_wrong_T, np.nan, self.track.values[channel])
        track = replace(self.track, values=self.track.values | {channel: x_T})
        return replace(self, track=track, code_S=self.code_S | {channel: code_S})


def out_of_order(times: RowTimes) -> np.ndarray:
    """Find used rows that were stored after a later one, ``mask_S``; they are put in their turn, not rejected."""
    stored = np.flatnonzero(times.fault_T == 0)
    t_ns = times.utc_ns_T[stored]
    is_late_S = np.zeros(len(times.utc_ns_T), dtype=bool)
    is_late_S[stored] = t_ns < np.maximum.accumulate(t_ns)
    return is_late_S


def screen_sensor(sensor: SensorRows, times: RowTimes) -> Screened:
    """Put the rows of a sensor in order of their instants, and check their readings."""
    t_ns_T = times.utc_ns_T[times.used]
    values: dict[str, np.ndarray] = {}
    codes: dict[str, np.ndarray] = {}
    for channel in sensor.channels:
        column = sensor.rows[channel.name]
        if channel.kind is Kind.EVENT:
            values[channel.name] = column.fill_null("").to_numpy().astype(object)[times.used]
            continue
        x_S = column.cast(pl.Float64).to_numpy()
        code_S = one_by_one(x_S, channel)
        code_S[times.used] = screen(t_ns_T, x_S[times.used], channel, rate_hz=sensor.nominal_rate_hz)
        values[channel.name] = believed(x_S, code_S)[times.used]
        codes[channel.name] = code_S
    track = Track(
        sensor=sensor.sensor,
        t_ns_T=t_ns_T,
        values=values,
        channels=sensor.channels,
        rate_hz=sensor.nominal_rate_hz,
    )
    return Screened(track=track, num_rows=sensor.rows.height, used=times.used, code_S=codes)
