import numpy as np
import pytest

from pipelines import cadence

NS = 10**9


def facts_of(t_ns, rate_hz):
    return cadence.stream_facts(t_ns, np.sort(t_ns), rate_hz)


@pytest.fixture(params=range(3))
def rng(request):
    return np.random.default_rng(request.param)


def test_a_regular_stream_has_the_facts_it_was_made_with(rng):
    t_ns = np.cumsum(rng.normal(0.1, 0.003, size=5000) * 1e9).astype(np.int64)
    t_ns[2000:] += 40 * NS

    facts = facts_of(t_ns, 10.0)

    assert facts["measured_rate_hz"] == pytest.approx(10.0, rel=0.01)
    assert facts["regular_share"] == pytest.approx(4998 / 4999, abs=1e-6)
    assert facts["largest_gap_s"] == pytest.approx(40.1, abs=0.02)
    assert facts["hour_jumps"] == 0


def test_late_rows_make_no_gap(rng):
    t_ns = np.arange(1000) * NS
    late = rng.choice(np.arange(10, 990, 20), size=5, replace=False)
    t_ns = np.insert(np.delete(t_ns, late), late + 4 - np.arange(5), late * NS)

    facts = facts_of(t_ns, 1.0)

    assert facts["largest_gap_s"] == 1.0


def test_an_hour_read_twice_is_a_jump():
    t_ns = np.arange(10_000) * NS
    t_ns[5_000:] -= 3_600 * NS

    assert facts_of(t_ns, 1.0)["hour_jumps"] == 1


def test_an_event_stream_has_no_cadence():
    assert set(facts_of(np.array([5, 9, 7]) * NS, None).values()) == {None}


@pytest.mark.parametrize("num_rows", [0, 1])
def test_too_few_rows_say_nothing(num_rows):
    assert set(facts_of(np.zeros(num_rows, dtype=np.int64), 1.0).values()) == {None}


def test_stamps_that_are_all_equal_have_no_rate():
    facts = facts_of(np.full(10, NS), 1.0)

    assert facts["measured_rate_hz"] is None
    assert facts["regular_share"] == 0.0


def test_gaps_and_readings_together_are_all_the_time_there_is(rng):
    t_ns = np.sort(rng.integers(0, 10**6, size=500))
    group = rng.integers(0, 4, size=500)
    has_reading = rng.random(500) < 0.5

    found = cadence.gaps(t_ns, has_reading, group)

    spans = [np.ptp(t_ns[group == one]) for one in range(4)]
    assert found.length_ns_I.sum() == sum(spans)
    assert (found.length_ns_I >= 0).all()


def test_order_of_rows_changes_no_gap(rng):
    t_ns = rng.integers(0, 10**6, size=300)
    group = rng.integers(0, 3, size=300)
    has_reading = rng.random(300) < 0.5
    order = rng.permutation(300)

    one = cadence.gaps(t_ns, has_reading, group)
    other = cadence.gaps(t_ns[order], has_reading[order], group[order])

    assert sorted(one.length_ns_I) == sorted(other.length_ns_I)
    assert cadence.coverage(one, hold_ns=100) == cadence.coverage(other, hold_ns=100)


def test_a_stream_lies_behind_the_others_to_the_nanosecond_today():
    today_ns = 1_767_600_000 * NS
    first_ns = today_ns + np.array([1, 3, 5, 7])

    assert cadence.behind_others(first_ns, first_ns + NS).tolist() == [-4, -2, 2, 4]
