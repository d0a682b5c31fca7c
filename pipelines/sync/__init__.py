"""From rows of many clocks to one record: a recording brought onto one time and one line, with all rows accounted for.

- `flow`      calibrate, screen, tie, align, locate, account
- `measured`  what each clock was compared with
- `passport`  what the result says about itself, in numbers
- `rows`      instant, place and reason of every row
- `report`    all of it for a person, as one HTML page
- `folder`    all of it as files, for `trackside sync`
"""

from pipelines.sync.flow import SyncedRecording, synchronise

__all__ = ["SyncedRecording", "synchronise"]
