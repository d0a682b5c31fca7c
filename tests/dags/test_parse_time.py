from pathlib import Path

from pipelines.bench import dag_parse

LIMIT_MS = 100
"""Airflow reads the files all the time, and gives up on one after 30 s; our share of that stays out of sight."""


def test_reading_each_dag_file_costs_little_beyond_airflow_itself():
    costs = dag_parse.run()

    assert set(costs) == {path.stem for path in (Path(__file__).parents[2] / "dags").glob("*.py")} != set()
    assert {dag_id: cost for dag_id, cost in costs.items() if not 0 < cost["cpu_ms"] <= LIMIT_MS} == {}
