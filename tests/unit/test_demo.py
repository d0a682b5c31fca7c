import io

import pytest
from rich.console import Console

from pipelines import demo
from pipelines.airflow_client import TaskState
from pipelines.errors import ConfigError

SUMMARY = {
    "simulated": True,
    "facts": {"recordings": "4 published, 1 quarantined", "steps": 12},
    "metrics": ["f1", "pr_auc"],
    "scores": {"candidate": [0.9, 0.95], "last_value": [0.5, None]},
    "rules": [
        {"name": "minimum score", "passed": True, "detail": "f1 is 0.9000, at least 0.8 is asked"},
        {"name": "better than pump/3", "passed": False, "detail": "f1 is 0.9000 against 0.9500"},
    ],
}


class PretendAirflow:
    """A client whose run shows these looks and ends in this state."""

    url = "http://airflow"

    def __init__(self, looks, state):
        self.looks, self.ended = looks, state

    def follow(self, dag_id, run_id, *, deadline_s):
        yield from self.looks

    def state(self, dag_id, run_id):
        return self.ended


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def printed(console):
    return console.file.getvalue()


def tasks(**states):
    return [TaskState(task_id=label, label=label, state=state) for label, state in states.items()]


def test_news_are_tasks_that_started_or_ended_since_the_last_look():
    seen = {}

    looks = [
        tasks(land="running", plan="waiting"),
        tasks(land="running", plan="queued"),
        tasks(land="success", plan="deferred"),
    ]
    news = [[(task.label, task.state) for task in demo._news(look, seen)] for look in looks]

    assert news == [[("land", "running")], [], [("land", "success"), ("plan", "deferred")]]
    assert seen == {"land": "success", "plan": "deferred"}


def test_a_followed_run_is_told_task_by_task(console):
    airflow = PretendAirflow([tasks(land="running"), tasks(land="success")], "success")

    failure = demo._follow(airflow, "ingest_sensors", "manual__1", 10, console)

    lines = printed(console).splitlines()
    assert failure == ""
    assert lines[0] == "ingest_sensors manual__1  http://airflow/dags/ingest_sensors/runs/manual__1"
    assert [line.split(" s  ")[1] for line in lines[1:]] == ["land: running", "land: success"]


def test_a_run_that_fails_names_the_tasks_that_did(console):
    airflow = PretendAirflow([tasks(land="success", train="failed", register="upstream_failed")], "failed")

    failure = demo._follow(airflow, "nightly_retrain", "manual__1", 10, console)

    assert failure == (
        "nightly_retrain manual__1 ended as failed; failed: train; see http://airflow/dags/nightly_retrain"
    )
    assert failure in printed(console)


def test_the_summary_says_first_that_the_data_are_a_simulation(console):
    demo._print_summary(console, SUMMARY, source="bundle")

    assert printed(console).strip().startswith("The data below are a simulation.")


def test_the_summary_of_real_data_does_not_speak_of_simulation(console):
    demo._print_summary(console, SUMMARY | {"simulated": False}, source="metropt3")

    assert "simulat" not in printed(console)


def test_the_summary_shows_facts_scores_and_every_rule(console):
    demo._print_summary(console, SUMMARY, source="bundle")

    text = printed(console)
    assert "4 published, 1 quarantined" in text
    assert [cell.strip() for cell in text.split("last_value")[1].splitlines()[0].split("│")[1:3]] == [
        "0.500",
        "–",
    ]
    assert "gate: pass  minimum score: f1 is 0.9000, at least 0.8 is asked" in text
    assert "gate: FAIL  better than pump/3: f1 is 0.9000 against 0.9500" in text


def test_a_source_that_nothing_trains_on_is_refused_before_anything_starts(console, tmp_path, monkeypatch):
    monkeypatch.setattr(demo.steps, "source_of", lambda uri: "modena")
    monkeypatch.setattr(demo.services, "up", lambda *_, **__: pytest.fail("services were started"))

    with pytest.raises(ConfigError, match=r"node\.log: no recipe trains on modena yet; known are bundle, metropt3"):
        demo.run(tmp_path, data="node.log", ports={}, console=console)


def test_the_sample_fleet_is_simulated_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("pipelines.simulate.simulate_fleet", lambda out, **_: made.append(out))

    first = demo._sample_fleet(tmp_path)
    (made[0] / "truth").mkdir(parents=True)
    (made[0] / "truth" / "events.csv").write_text("")  # the last file that a simulation writes
    second = demo._sample_fleet(tmp_path)

    assert first == second == str(made[0])
    assert len(made) == 1
