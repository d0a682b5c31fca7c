"""Device clocks and UTC: `calibrate` finds a map for every clock and an instant for every row of a recording.

- `stamps`       stamp columns to device time; which stamps cannot be true
- `exchanges`    four timestamps of NTP; `servers`: which of them to believe
- `fit`          exchanges or pairs to a map: `track`, `drift`, `steps`, `placing`
- `clock_map`    device time to UTC, with its uncertainty, segment by segment
- `sides`        on which side of a step a row was stamped
- `beat`         whose turn it was, of every row of a regular sensor
- `dejitter`     how much later than its turn a row was stamped
- `signal_sync`  a clock that nothing compares with UTC, tied by a speed that others see too; `skew`: a check of it
- `row_times`    all of it for the rows of one sensor
- `calibrate`    for a recording
"""
