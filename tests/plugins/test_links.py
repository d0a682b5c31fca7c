from datetime import timedelta

from pipelines import steps
from trackside_airflow.links import DataDocsLink, MlflowRunLink, TimeAndPlaceLink
from trackside_airflow.operators import SynchroniseOperator, TrainOperator, ValidateOperator


def test_a_validation_links_to_its_report_on_our_page(monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/base/")
    operator = ValidateOperator(task_id="validate", staged="bundle/07/2026-01-12/trip 1")

    link = DataDocsLink().get_link(operator, ti_key=None)

    assert link == "https://airflow.example/base/trackside/docs/bundle/07/2026-01-12/trip%201/index.html"


def test_a_synchronisation_links_to_the_charts_of_what_it_staged(monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example")
    monkeypatch.setattr(steps, "synchronise", lambda recordings: f"s3://lake/staging/bundle/07/2026-01-12/{recordings}")
    operator = SynchroniseOperator(task_id="synchronise", recordings="batch")

    operator.execute({})

    link = TimeAndPlaceLink().get_link(operator, ti_key=None)
    assert link == "https://airflow.example/trackside/docs/bundle/07/2026-01-12/batch/sync.html"


def test_a_synchronisation_that_failed_links_to_nothing():
    operator = SynchroniseOperator(task_id="synchronise", recordings=["a"])

    assert TimeAndPlaceLink().get_link(operator, ti_key=None) == ""


def test_a_training_links_to_its_mlflow_run(monkeypatch):
    monkeypatch.setattr(steps, "mlflow_run_url", lambda plan: f"http://localhost:5000/#/runs/{plan}")
    operator = TrainOperator(task_id="train", plan="key", time_limit=timedelta(hours=1))

    assert MlflowRunLink().get_link(operator, ti_key=None) == "http://localhost:5000/#/runs/key"


def test_the_links_are_offered_by_the_tasks_that_have_something_to_show():
    assert [link.name for link in SynchroniseOperator.operator_extra_links] == ["Time and place"]
    assert [link.name for link in ValidateOperator.operator_extra_links] == ["Data Docs"]
    assert [link.name for link in TrainOperator.operator_extra_links] == ["MLflow run"]
