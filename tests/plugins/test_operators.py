import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowException, AirflowSkipException, TaskDeferred

from pipelines import steps
from pipelines.errors import DataQualityError, NonFiniteLossError, TrainingLostError
from trackside_airflow.operators import PromoteOperator, TrainOperator, ValidateOperator
from trackside_airflow.retries import RETRY_POLICY
from trackside_airflow.triggers import TIMED_OUT

PLAN = "s3://trackside/runs/key/plan.json"


class FakeEngine:
    """An engine with one job a generation, at the edge where `steps` stands."""

    def __init__(self):
        self.jobs = {}
        self.links = None
        self.error = None

    def submit_training(self, plan, *, links=None):
        assert plan == PLAN
        self.links = links
        if not self.jobs or list(self.jobs.values())[-1] in {"FAILED", "STOPPED"}:
            self.jobs[f"key-g{len(self.jobs)}"] = "RUNNING"
        return list(self.jobs)[-1]

    def stop_training(self, submission_id):
        self.jobs[submission_id] = "STOPPED"

    def training_result(self, plan):
        if self.error:
            raise self.error
        return "s3://trackside/runs/key/result.json"


@pytest.fixture
def engine(monkeypatch):
    fake = FakeEngine()
    for name in ("submit_training", "stop_training", "training_result"):
        monkeypatch.setattr(steps, name, getattr(fake, name))
    return fake


@pytest.fixture
def context():
    pushed = {}
    ti = SimpleNamespace(
        dag_id="nightly_retrain",
        run_id="scheduled__2026-01-12T02:00:00+00:00",
        log_url="https://airflow.example/dags/nightly_retrain/runs/x/tasks/train?try_number=1",
        task_id="train",
        map_index=-1,
        state="running",
        xcom_push=lambda key, value: pushed.update({key: value}),
        pushed=pushed,
    )
    ti.get_task_states = lambda *, dag_id, task_ids, run_ids, map_index: {run_ids[0]: {task_ids[0]: ti.state}}
    run = SimpleNamespace(dag_id=ti.dag_id, run_id=ti.run_id, triggering_user_name=None)
    return {"ti": ti, "dag_run": run}


def train_operator():
    return TrainOperator(task_id="train", plan=PLAN, time_limit=timedelta(hours=8))


def deferral(operator, context):
    with pytest.raises(TaskDeferred) as caught:
        operator.execute(context)
    return caught.value


def ended(state, message="the end", submission_id="key-g0"):
    return {"submission_id": submission_id, "state": state, "message": message}


def test_training_waits_in_the_triggerer_until_its_time_limit(engine, context):
    deferred = deferral(train_operator(), context)

    _, arguments = deferred.trigger.serialize()
    assert engine.jobs == {"key-g0": "RUNNING"}
    assert arguments["submission_id"] == "key-g0"
    assert arguments["deadline"] == pytest.approx(time.time() + 8 * 3600, abs=60)
    assert deferred.method_name == "execute_complete"


def test_a_retry_after_a_dead_worker_finds_the_same_job(engine, context):
    first = deferral(train_operator(), context)  # the process dies here; nothing of it is left

    second = deferral(train_operator(), context)

    assert second.trigger.serialize()[1]["submission_id"] == first.trigger.serialize()[1]["submission_id"]
    assert len(engine.jobs) == 1


def test_a_retry_after_a_lost_job_starts_the_next_generation(engine, context):
    deferral(train_operator(), context)
    engine.jobs["key-g0"] = "FAILED"

    deferred = deferral(train_operator(), context)

    assert deferred.trigger.serialize()[1]["submission_id"] == "key-g1"


def test_the_job_is_told_which_airflow_run_and_task_it_belongs_to(engine, context, monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example")

    deferral(train_operator(), context)

    assert engine.links == {
        "airflow_run": "https://airflow.example/dags/nightly_retrain/runs/scheduled__2026-01-12T02%3A00%3A00%2B00%3A00",
        "airflow_task": context["ti"].log_url,
        "airflow_documents": "https://airflow.example/trackside/docs/",
    }


def test_a_finished_training_gives_the_location_of_its_result(engine, context):
    result = train_operator().execute_complete(context, ended("SUCCEEDED"))

    assert result == "s3://trackside/runs/key/result.json"


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (TrainingLostError("node 2 is gone"), RetryAction.RETRY),
        (NonFiniteLossError("loss is NaN at step 40"), RetryAction.FAIL),
    ],
)
def test_a_failed_training_fails_with_the_jobs_own_error_which_decides_about_the_retry(engine, context, error, action):
    engine.error = error

    with pytest.raises(type(error), match=str(error)) as caught:
        train_operator().execute_complete(context, ended("FAILED"))

    assert RETRY_POLICY.evaluate(caught.value, try_number=1, max_tries=3).action is action


def test_a_training_beyond_its_time_limit_is_stopped_and_may_be_retried(engine, context):
    deferral(train_operator(), context)

    with pytest.raises(AirflowException, match=r"key-g0 had not ended after 8:00:00.*step 7") as caught:
        train_operator().execute_complete(context, ended(TIMED_OUT, "last seen RUNNING: step 7"))

    assert engine.jobs == {"key-g0": "STOPPED"}
    assert RETRY_POLICY.evaluate(caught.value, try_number=1, max_tries=3).action is RetryAction.DEFAULT


@pytest.mark.parametrize("state", ["failed", "success", "restarting", None])
def test_a_task_that_a_person_ended_while_it_submitted_stops_the_job(engine, context, state):
    context["ti"].state = state  # Airflow refuses to defer such a task, so that no trigger would know of the job

    deferral(train_operator(), context)

    assert engine.jobs == {"key-g0": "STOPPED"}


def test_a_signal_alone_does_not_stop_the_job(engine, context):
    operator = train_operator()
    deferral(operator, context)

    operator.on_kill()  # the worker shuts down

    assert engine.jobs == {"key-g0": "RUNNING"}


def test_a_batch_that_fails_its_suite_fails_the_task_with_the_reason(monkeypatch, context):
    def refuse(staged):
        raise DataQualityError(f"{staged}: 2 of 14 checks failed over 86,400 rows")

    monkeypatch.setattr(steps, "validate", refuse)

    with pytest.raises(DataQualityError, match="2 of 14 checks failed"):
        ValidateOperator(task_id="validate", staged="staging/x").execute(context)


def promote_operator(force=False):
    return PromoteOperator(task_id="promote", candidate="smoke/3", report="report.json", key="night", force=force)


@pytest.mark.parametrize(("user", "decided_by"), [("ada", "ada"), (None, "schedule")])
def test_a_promotion_is_the_tasks_result_and_says_who_asked(monkeypatch, context, user, decided_by):
    asked = []

    def promote(candidate, report, **named):
        asked.append((candidate, report, named))
        return {"promoted": True, "reasons": ["0.91 against 0.88"]}

    monkeypatch.setattr(steps, "promote", promote)
    context["dag_run"].triggering_user_name = user

    decision = promote_operator(force=True).execute(context)

    assert decision == {"promoted": True, "reasons": ["0.91 against 0.88"]}
    named = {
        "key": "night",
        "decided_by": decided_by,
        "force": True,
        "dag_run": "nightly_retrain/scheduled__2026-01-12T02:00:00+00:00",
    }
    assert asked == [("smoke/3", "report.json", named)]


def test_a_refusal_skips_the_task_says_why_and_keeps_the_decision(monkeypatch, context):
    decision = {"promoted": False, "reasons": ["auc 0.7 is below 0.8", "worse than the champion"]}
    monkeypatch.setattr(steps, "promote", lambda candidate, report, **named: decision)

    with pytest.raises(AirflowSkipException, match=r"smoke/3 was not promoted: auc 0\.7 is below 0\.8; worse than"):
        promote_operator().execute(context)

    assert context["ti"].pushed == {"return_value": decision}
