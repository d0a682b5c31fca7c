import pytest

CLOCKS = {
    "clock_id": ["axle", "brake", "gps", "radar"],
    "method": ["exchanges", "exchanges", "gps", "signal"],
    "residual_p99_ms": [5.25, 0.73, None, 20.1],
    "drift_ppm": [-3_300.0, 89.0, None, -6.5],
}


def test_the_worst_clock_is_named(judge):
    check = judge("expect_clock_residual_to_be_at_most", CLOCKS, max_ms=10)

    assert not check.passed
    assert check.observed == "20.1 ms"
    assert check.examples[0] == "radar 20.1"


def test_only_clocks_beyond_the_bound_are_named(judge):
    assert judge("expect_clock_residual_to_be_at_most", CLOCKS, max_ms=10).examples == ("radar 20.1",)
    assert judge("expect_clock_residual_to_be_at_most", CLOCKS, max_ms=1).examples == ("radar 20.1", "axle 5.25")


def test_a_bound_may_be_meant_for_some_methods_alone(judge):
    assert judge("expect_clock_residual_to_be_at_most", CLOCKS, max_ms=10, methods=["exchanges"]).passed
    assert not judge("expect_clock_residual_to_be_at_most", CLOCKS, max_ms=5, methods=["exchanges"]).passed


def test_a_clock_that_runs_slow_drifts_as_much_as_one_that_runs_fast(judge):
    check = judge("expect_clock_drift_to_be_at_most", CLOCKS, max_ppm=1_000)

    assert not check.passed
    assert check.value == 3_300
    assert check.examples[0] == "axle 3300"
    assert judge("expect_clock_drift_to_be_at_most", CLOCKS, max_ppm=5_000).passed


def test_clocks_that_were_never_measured_fail_unless_that_is_granted(judge):
    unmeasured = {"clock_id": ["logger"], "method": ["unchecked"], "drift_ppm": [None]}

    assert not judge("expect_clock_drift_to_be_at_most", unmeasured, max_ppm=1_000).passed
    assert judge("expect_clock_drift_to_be_at_most", unmeasured, max_ppm=1_000, allow_absent=True).passed


def skews(*skew_ms, sigma_ms=10.0):
    num = len(skew_ms)
    return {
        "sensor": ["gnss", "dop", "imu"][:num],
        "reference": ["odo"] * num,
        "skew_ms": list(skew_ms),
        "sigma_ms": [sigma_ms] * num,
    }


def test_a_skew_that_its_error_explains_is_none(judge):
    assert judge("expect_skew_to_be_at_most", skews(80.0, -30.0, sigma_ms=20.0), max_ms=10).passed


def test_a_skew_beyond_doubt_names_both_sensors_and_its_error(judge):
    check = judge("expect_skew_to_be_at_most", skews(-700.0, 300.0), max_ms=500)

    assert not check.passed
    assert check.value == 660.0
    assert check.examples == ("gnss and odo -700.0 ± 10.0 ms",)


@pytest.mark.parametrize(
    ("skew_ms", "meaning"), [(18_003.0, "GPS time was read as UTC"), (-36_990.0, "TAI was read as UTC")]
)
def test_leap_seconds_are_called_by_their_name(judge, skew_ms, meaning):
    check = judge("expect_skew_to_be_no_leap_seconds", skews(skew_ms, 3.0))

    assert not check.passed
    (example,) = check.examples
    assert example.startswith("gnss and odo are ")
    assert example.endswith(meaning)


def test_another_offset_is_not_blamed_on_leap_seconds(judge):
    assert judge("expect_skew_to_be_no_leap_seconds", skews(17_000.0, 900.0)).passed


def test_a_recording_in_which_nothing_could_be_compared_fails_unless_that_is_granted(judge):
    nothing = {name: values[:0] for name, values in skews(1.0).items()}

    for type_, kwargs in (("expect_skew_to_be_at_most", {"max_ms": 10}), ("expect_skew_to_be_no_leap_seconds", {})):
        assert not judge(type_, nothing, **kwargs).passed
        assert judge(type_, nothing, allow_absent=True, **kwargs).passed


def test_a_sensor_that_lies_an_hour_after_the_others_is_named(judge):
    columns = {"sensor": ["odo", "pneu", "evt"], "behind_others_s": [1.5, 3_603.0, None]}

    check = judge("expect_sensors_to_share_the_hour", columns)

    assert not check.passed
    assert check.examples == ("pneu +1 h",)


def test_a_sensor_that_starts_half_an_hour_late_is_not_an_hour_off(judge):
    columns = {"sensor": ["odo", "pneu"], "behind_others_s": [0.0, 1_800.0]}

    assert judge("expect_sensors_to_share_the_hour", columns).passed
