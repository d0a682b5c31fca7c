import numpy as np
import pytest

from pipelines.evaluate.events import AlarmRule, Event, alarm_episodes, score_events

HOUR_S = 3600
DAY_S = 86_400


def ns(seconds):
    return np.asarray(seconds, dtype=np.int64) * 10**9


def event(start_s, end_s, vehicle="07"):
    return Event(vehicle=vehicle, start_utc_ns=int(ns(start_s)), end_utc_ns=int(ns(end_s)))


def day(alarms, *, days=1, vehicle="07"):
    """A score every minute: 1 within the half-open intervals of `alarms` (seconds), 0 elsewhere."""
    t_s = np.arange(0, days * DAY_S, 60)
    score_T = np.zeros(len(t_s))
    for start_s, end_s in alarms:
        score_T[(t_s >= start_s) & (t_s < end_s)] = 1.0
    return ns(t_s), score_T, np.full(len(t_s), vehicle)


def rule(**changes):
    return AlarmRule(**{"threshold": 0.5, "period_s": 60.0, **changes})


def test_an_alarm_inside_an_event_finds_it():
    result = score_events(*day([(10 * HOUR_S, 11 * HOUR_S)]), [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule())

    assert [found.event for found in result.found] == [event(9 * HOUR_S, 12 * HOUR_S)]
    assert result.missed == result.unobserved == ()
    assert result.false_alarms == 0


def test_delay_counts_from_the_start_and_lead_to_the_end():
    result = score_events(*day([(10 * HOUR_S, 11 * HOUR_S)]), [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule())

    assert result.found[0].delay_s == 1 * HOUR_S
    assert result.found[0].lead_s == 2 * HOUR_S


def test_an_alarm_before_the_event_is_false_without_a_lead_window():
    result = score_events(*day([(8 * HOUR_S, 8.5 * HOUR_S)]), [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule())

    assert len(result.missed) == 1
    assert result.false_alarms == 1


def test_an_alarm_in_the_lead_window_is_an_early_warning():
    scores = day([(8 * HOUR_S, 8.5 * HOUR_S)])

    result = score_events(*scores, [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule(lead_window_s=2 * HOUR_S))

    assert result.found[0].delay_s == -1 * HOUR_S
    assert result.false_alarms == 0


def test_an_alarm_that_was_on_for_days_gives_no_more_lead_than_the_window():
    scores = day([(0, 2 * DAY_S)], days=2)

    result = score_events(*scores, [event(DAY_S, DAY_S + HOUR_S)], rule=rule(lead_window_s=HOUR_S))

    assert result.found[0].lead_s == 2 * HOUR_S


def test_an_alarm_that_never_ends_shows_in_the_time_share():
    result = score_events(*day([(0, DAY_S)]), [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule())

    assert result.false_alarms == 0
    assert result.to_scores()["false_alarm_time_share"] == 1.0
    assert result.quiet_s == 21 * HOUR_S


def test_an_alarm_is_raised_only_after_the_minimum_duration():
    scores = day([(10 * HOUR_S, 11 * HOUR_S)])

    result = score_events(*scores, [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule(min_duration_s=600))

    assert result.found[0].delay_s == HOUR_S + 600


def test_an_alarm_raised_after_the_end_does_not_find_the_event():
    scores = day([(12 * HOUR_S - 300, 13 * HOUR_S)])

    result = score_events(*scores, [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule(min_duration_s=600))

    assert len(result.missed) == 1
    assert result.false_alarms == 0


def test_alarms_outside_events_are_false_and_counted_by_the_month():
    result = score_events(*day([(HOUR_S, 2 * HOUR_S), (5 * HOUR_S, 5.5 * HOUR_S)], days=3), [], rule=rule())

    assert result.false_alarms == 2
    assert result.false_alarms_per_month == pytest.approx(20)
    assert np.isnan(result.recall)


def test_a_gap_is_not_observed_time():
    t_utc_ns_T, score_T, vehicle_T = day([], days=2)
    keep_T = (t_utc_ns_T < ns(6 * HOUR_S)) | (t_utc_ns_T >= ns(DAY_S))

    result = score_events(t_utc_ns_T[keep_T], score_T[keep_T], vehicle_T[keep_T], [], rule=rule())

    assert result.observed_s == 30 * HOUR_S


def test_an_event_in_a_gap_is_neither_found_nor_missed():
    result = score_events(*day([]), [event(2 * DAY_S, 3 * DAY_S)], rule=rule())

    assert result.unobserved == (event(2 * DAY_S, 3 * DAY_S),)
    assert result.missed == ()


def test_an_event_of_a_vehicle_without_scores_is_unobserved():
    result = score_events(*day([]), [event(HOUR_S, 2 * HOUR_S, vehicle="99")], rule=rule())

    assert len(result.unobserved) == 1


def test_an_alarm_of_one_vehicle_does_not_find_the_event_of_another():
    parts = [day([(10 * HOUR_S, 11 * HOUR_S)], vehicle="07"), day([], vehicle="08")]
    t_utc_ns_T, score_T, vehicle_T = (np.concatenate(part) for part in zip(*parts, strict=True))

    result = score_events(t_utc_ns_T, score_T, vehicle_T, [event(9 * HOUR_S, 12 * HOUR_S, vehicle="08")], rule=rule())

    assert len(result.missed) == 1
    assert result.false_alarms == 1
    assert result.observed_s == 2 * DAY_S


def test_the_order_of_the_scores_does_not_matter():
    scores = day([(10 * HOUR_S, 11 * HOUR_S), (20 * HOUR_S, 21 * HOUR_S)])
    order = np.random.default_rng(0).permutation(len(scores[0]))

    shuffled = score_events(*(part[order] for part in scores), [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule())

    assert shuffled == score_events(*scores, [event(9 * HOUR_S, 12 * HOUR_S)], rule=rule())


def test_overlapping_events_count_their_time_once():
    events = [event(9 * HOUR_S, 12 * HOUR_S), event(11 * HOUR_S, 13 * HOUR_S)]

    result = score_events(*day([(10 * HOUR_S, 12 * HOUR_S)]), events, rule=rule())

    assert len(result.found) == 2
    assert result.quiet_s == 20 * HOUR_S


def test_scores_that_are_not_finite_are_refused():
    t_utc_ns_T, score_T, vehicle_T = day([])
    score_T[3] = np.nan

    with pytest.raises(ValueError, match="1 of 1440 scores are not finite"):
        score_events(t_utc_ns_T, score_T, vehicle_T, [], rule=rule())


def test_no_scores_give_no_numbers_rather_than_zeros():
    empty = np.empty(0, dtype=np.int64)

    result = score_events(empty, empty.astype(float), empty.astype(str), [], rule=rule())

    assert result.observed_s == 0
    assert np.isnan(result.false_alarms_per_month)


@pytest.mark.parametrize(
    ("pause_s", "num_episodes"), [(600, 1), (660, 2)], ids=["as long as the merge gap", "one minute longer"]
)
def test_alarms_merge_over_pauses_up_to_the_gap(pause_s, num_episodes):
    t_utc_ns_T, score_T, _ = day([(HOUR_S, 2 * HOUR_S), (2 * HOUR_S + pause_s, 3 * HOUR_S)])

    episode_E2 = alarm_episodes(t_utc_ns_T, score_T, rule=rule(merge_gap_s=600))

    assert len(episode_E2) == num_episodes
    assert episode_E2[0, 0] == ns(HOUR_S)
    assert episode_E2[-1, 1] == ns(3 * HOUR_S)


def test_short_episodes_are_dropped():
    t_utc_ns_T, score_T, _ = day([(HOUR_S, HOUR_S + 300), (5 * HOUR_S, 6 * HOUR_S)])

    episode_E2 = alarm_episodes(t_utc_ns_T, score_T, rule=rule(min_duration_s=301))

    assert episode_E2.tolist() == [[ns(5 * HOUR_S), ns(6 * HOUR_S)]]


def test_an_alarm_does_not_hold_through_a_gap():
    t_utc_ns_T, score_T = ns([0, 60, 5000, 5060]), np.ones(4)

    episode_E2 = alarm_episodes(t_utc_ns_T, score_T, rule=rule())

    assert episode_E2.tolist() == [[0, ns(120)], [ns(5000), ns(5120)]]


def test_a_rule_without_a_period_is_refused():
    with pytest.raises(ValueError, match="period_s is 0 s"):
        rule(period_s=0)


def test_a_negative_duration_is_refused():
    with pytest.raises(ValueError, match="lead_window_s is -1 s"):
        rule(lead_window_s=-1)
