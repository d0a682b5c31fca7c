"""Trackside: recordings of trains, tracks and trackside radio sites, turned into models every night.

A map of the package, in the order in which data goes through it:

- `ingest`      a reader a source: what landed becomes typed rows, raw stamps kept
- `clocks`      each device clock gets a map to UTC
- `align`       all channels of a recording on one time base, with validity and age
- `position`    where on the line each row is
- `screen`      readings that cannot be true, with reason codes
- `validation`  Great Expectations suites decide whether a batch may be trained on; our own in `timeseries_expectations`
- `windows`, `splits`  training examples, and which of them are held out
- `models`, `train`    torch modules; the loop, its engine, checkpoints
- `evaluate`    scores beside naive baselines
- `tracking`, `registry`  MLflow runs, model versions, aliases
- `steps`       the only door for an orchestrator; `cli` the same doors from a shell

`errors`, `channels`, `config` and `storage` stand below all of them. A module imports only what stands below it;
nothing here has heard of Airflow.
"""
