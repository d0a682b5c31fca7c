from pathlib import Path

from pipelines.bench import dag_parse


def test_reading_each_dag_file_costs_little_beyond_airflow_itself():
    result = dag_parse.run()

    costs_ms = result["measured"]["cpu_ms_of_dag"]
    assert set(costs_ms) == {path.stem for path in (Path(__file__).parents[2] / "dags").glob("*.py")} != set()
    assert {dag_id: cost_ms for dag_id, cost_ms in costs_ms.items() if not 0 < cost_ms <= dag_parse.MAX_CPU_MS} == {}
    assert result["passed"]
