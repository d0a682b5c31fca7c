"""Trackside: recordings of trains, tracks and trackside radio sites, turned into models every night.

A map of the package, in the order in which data goes through it:

- `simulate`    a fleet with known truth, for the demo, the tests and the benchmarks
- `ingest`      a reader a source: what landed becomes typed rows, raw stamps kept
- `clocks`      each device clock gets a map to UTC
- `align`       all channels of a recording on one time base, with validity and age
- `position`    where on the line each row is
- `screen`      readings that cannot be true, with reason codes
- `sync`        all of this for one recording: rows with an instant and a place, aligned channels, a report
- `validation`  Great Expectations suites hold a batch to what is right: they are in `suites`, our own expectations in
                `timeseries_expectations`, what they said as pages in `data_docs`
- `staging`, `judgement`, `publishing`  a batch awaits a verdict, gets one, and goes into its source's table or not
- `windows`, `splits`  training examples, and which of them are held out
- `models`, `train`    torch modules; the loop, its engine, checkpoints
- `evaluate`    scores beside naive baselines
- `runs`, `tracking`, `registry`  a training's folder; MLflow runs, model versions, aliases
- `ledger`, `promotion`, `lineage`  which version is champion, who decided it, and what its data has become since
- `assessment`, `scoring`, `summary`  what a training was worth; a model on new rows; a finished run for a person
- `steps`       the only door for an orchestrator; `cli` the same doors from a shell
- `services`, `airflow_client`, `demo`, `bench`  what a machine runs, the main job from one command, the benchmarks

`errors`, `compiled`, `progress`, `cadence`, `channels`, `config` and `storage` stand below all of them. A stage imports
earlier ones and never later ones, as the contract in `pyproject.toml` says; nothing here has heard of Airflow.
"""
