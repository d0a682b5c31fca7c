import pytest

from pipelines.train.goodput import Attempt, Progress, goodput, read_attempts, recorded


def attempt(name, submission, **times):
    return Attempt(name=name, submission=submission, workers=2, **times)


def test_an_undisturbed_training_is_start_up_and_steps():
    only = attempt(
        "a",
        "g0",
        submitted_at_s=100.0,
        driver_at_s=102.0,
        started_at_s=108.0,
        began_at_s=110.0,
        heartbeat_at_s=130.0,
        step=100,
        step_s=18.0,
        stall_s=0.9,
        validation_s=1.0,
        checkpoint_s=1.0,
    )

    spent = goodput([only], finished_at_s=131.0)

    assert (spent.wall_s, spent.waiting_s, spent.startup_s) == (31.0, 2.0, 8.0)
    assert (spent.productive_s, spent.redone_s, spent.checkpoint_s, spent.other_s) == (19.0, 0.0, 1.0, 1.0)
    assert spent.goodput == pytest.approx((29 / 31) * (19 / 29) * (1 - 0.9 / 18))


def test_steps_that_a_killed_attempt_lost_are_redone_and_its_restart_is_start_up():
    times = {"submitted_at_s": 0.0, "driver_at_s": 0.0}
    killed = attempt("a", "g0", **times, started_at_s=1.0, began_at_s=2.0, heartbeat_at_s=12.0, step=50, step_s=10.0)
    second = attempt(
        "b",
        "g0",
        **times,
        started_at_s=20.0,
        began_at_s=22.0,
        heartbeat_at_s=34.0,
        resumed_from=40,
        step=100,
        step_s=12.0,
    )

    spent = goodput([killed, second], finished_at_s=34.0)

    assert spent.redone_s == pytest.approx(2.0)
    assert spent.productive_s == pytest.approx(8.0 + 12.0)
    assert spent.startup_s == pytest.approx(2.0 + 10.0)
    assert spent.other_s == pytest.approx(0.0)


def test_time_until_a_dead_job_is_followed_by_the_next_is_waiting():
    first = attempt(
        "a",
        "g0",
        submitted_at_s=0.0,
        driver_at_s=1.0,
        started_at_s=2.0,
        began_at_s=3.0,
        heartbeat_at_s=10.0,
        step=10,
        step_s=7.0,
    )
    second = attempt(
        "b",
        "g1",
        submitted_at_s=40.0,
        driver_at_s=42.0,
        started_at_s=45.0,
        began_at_s=46.0,
        heartbeat_at_s=50.0,
        resumed_from=10,
        step=15,
        step_s=4.0,
    )

    spent = goodput([first, second], finished_at_s=50.0)

    assert spent.waiting_s == 1.0 + 32.0
    assert spent.startup_s == 2.0 + 4.0
    assert spent.scheduling == pytest.approx(1 - 33 / 50)


def test_the_parts_always_add_up_to_the_wall_time():
    first = attempt("a", "g0", submitted_at_s=0.0, driver_at_s=1.0, started_at_s=2.0, heartbeat_at_s=9.0)
    second = attempt(
        "b",
        "g1",
        submitted_at_s=20.0,
        driver_at_s=21.0,
        started_at_s=22.0,
        began_at_s=25.0,
        heartbeat_at_s=50.0,
        step=9,
        step_s=20.0,
        checkpoint_s=2.0,
        validation_s=1.0,
    )

    spent = goodput([first, second], finished_at_s=52.0)

    parts = (spent.productive_s, spent.redone_s, spent.checkpoint_s, spent.startup_s, spent.waiting_s, spent.other_s)
    assert sum(parts) == pytest.approx(spent.wall_s)
    assert min(parts) >= 0


def test_an_attempt_that_dies_leaves_its_record_behind(tmp_path):
    progress = Progress()
    first = attempt("a", "g0", submitted_at_s=1.0, driver_at_s=1.0, started_at_s=1.0)

    def die():
        with recorded(str(tmp_path), first, progress):
            progress.step = 12
            raise RuntimeError

    with pytest.raises(RuntimeError):
        die()

    assert [(a.name, a.step) for a in read_attempts(str(tmp_path))] == [("a", 12)]
