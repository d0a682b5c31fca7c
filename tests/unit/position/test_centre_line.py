import numpy as np
import polars as pl
import pyproj
import pytest

from pipelines.position.centre_line import BEYOND_M, NEAR_M, Candidates, centre_line, follow

FLAT = pyproj.Proj(proj="aeqd", lat_0=46.9, lon_0=7.4, ellps="WGS84")


def on_map(line_m, north_m, east_m, km_post=None):
    lon_deg, lat_deg = FLAT(east_m, north_m, inverse=True)
    km_post = line_m if km_post is None else km_post
    return pl.DataFrame({"line_m": line_m, "km_post": km_post, "lat_deg": lat_deg, "lon_deg": lon_deg})


def winding(length_m=30_000.0, step_m=25.0):
    run_m = np.arange(0.0, length_m + step_m, step_m)
    heading = 0.8 + 0.5 * np.sin(run_m / 2_500.0)
    north_m = np.r_[0.0, np.cumsum(np.cos(heading[:-1]) * step_m)]
    east_m = np.r_[0.0, np.cumsum(np.sin(heading[:-1]) * step_m)]
    return run_m, north_m, east_m


def find(line, north_m, east_m):
    lon_deg, lat_deg = FLAT(np.asarray(east_m), np.asarray(north_m), inverse=True)
    return line.candidates(lat_deg, lon_deg)


RUN_M, NORTH_M, EAST_M = winding()


@pytest.mark.parametrize(("shift_m", "stretch"), [(0.0, 1.0), (-7_000.0, 1.0), (1_000.0, 1.03), (0.0, 0.98)])
def test_points_of_the_line_are_found_at_their_surveyed_distance(shift_m, stretch):
    line = centre_line(on_map(RUN_M * stretch + shift_m, NORTH_M, EAST_M))
    at_m = np.array([0.0, 10.0, 5_000.0, 17_777.0, 30_000.0])

    found = find(line, np.interp(at_m, RUN_M, NORTH_M), np.interp(at_m, RUN_M, EAST_M))

    assert found.place_N.tolist() == [0, 1, 2, 3, 4]
    assert found.line_m_N == pytest.approx(at_m * stretch + shift_m, abs=0.02)
    assert found.off_m_N == pytest.approx(np.zeros(5), abs=0.01)


def test_a_point_aside_of_the_line_is_found_across_from_it():
    line = centre_line(on_map(np.array([0.0, 1_000.0, 2_000.0]), np.array([0.0, 1_000.0, 2_000.0]), np.zeros(3)))

    found = find(line, [1_234.0, 1_234.0, 1_234.0], [0.0, 40.0, NEAR_M + 5.0])

    assert found.place_N.tolist() == [0, 1]
    assert found.line_m_N == pytest.approx([1_234.0, 1_234.0], abs=0.01)
    assert found.off_m_N == pytest.approx([0.0, 40.0], abs=0.01)


def test_a_point_beyond_an_end_is_not_pulled_onto_it():
    line = centre_line(on_map(np.array([500.0, 1_500.0]), np.array([0.0, 1_000.0]), np.zeros(2)))

    found = find(line, [-20.0, 1_030.0, 1_000.0 + BEYOND_M + NEAR_M + 10.0], [0.0, 0.0, 0.0])

    assert found.place_N.tolist() == [0, 1]
    assert found.line_m_N == pytest.approx([480.0, 1_530.0], abs=0.01)


def test_a_point_between_two_branches_is_found_on_both():
    run_m = np.arange(0.0, 4_001.0, 50.0)
    out_and_back = on_map(run_m, np.minimum(run_m, 4_000.0 - run_m), np.where(run_m > 2_000.0, 30.0, 0.0))

    found = find(centre_line(out_and_back), [510.0, 510.0], [10.0, -20.0])

    assert found.place_N.tolist() == [0, 0, 1, 1]
    assert found.line_m_N == pytest.approx([510.0, 3_490.0, 510.0, 3_490.0], abs=0.1)
    assert found.off_m_N == pytest.approx([10.0, 20.0, 20.0, 50.0], abs=0.1)


def test_the_branch_is_the_one_that_the_train_could_have_reached():
    place_N = np.array([0, 1, 1, 2, 2, 3])
    line_m_N = np.array([1_000.0, 1_100.0, 2_900.0, 1_200.0, 2_800.0, 1_300.0])
    off_m_N = np.array([2.0, 15.0, 1.0, 14.0, 2.0, 1.0])  # the wrong branch is nearer

    line_m_M, off_m_M = follow(Candidates(place_N, line_m_N, off_m_N), np.array([0.0, 100.0, 200.0, 300.0]))

    assert line_m_M.tolist() == [1_000.0, 1_100.0, 1_200.0, 1_300.0]
    assert off_m_M.tolist() == [2.0, 15.0, 14.0, 1.0]


def test_a_leap_does_not_pull_what_follows_onto_another_branch():
    place_N = np.array([0, 1, 2, 2])
    line_m_N = np.array([1_000.0, 2_950.0, 1_200.0, 2_900.0])

    line_m_M, _ = follow(Candidates(place_N, line_m_N, np.array([2.0, 50.0, 2.0, 40.0])), np.array([0.0, 100.0, 200.0]))

    assert line_m_M.tolist() == [1_000.0, 2_950.0, 1_200.0]


def test_a_place_that_is_not_near_the_line_is_on_none():
    line_m_M, off_m_M = follow(Candidates(np.array([1]), np.array([5.0]), np.array([0.0])), np.zeros(3))

    assert np.isnan(line_m_M).tolist() == np.isnan(off_m_M).tolist() == [True, False, True]


def test_posts_follow_the_line_and_jump_where_the_survey_says_so():
    line_m = np.arange(0.0, 4_001.0, 25.0)
    km_post = 12_400.0 + line_m + np.where(line_m >= 1_000.0, 350.0, 0.0) + np.where(line_m >= 3_000.0, -120.0, 0.0)
    line = centre_line(on_map(line_m, line_m, np.zeros(len(line_m)), km_post))

    at_m = np.array([0.0, 990.0, 999.0, 1_000.0, 1_001.0, 2_999.0, 3_000.0, 4_000.0])

    wanted = [12_400.0, 13_390.0, 13_399.0, 13_750.0, 13_751.0, 15_749.0, 15_630.0, 16_630.0]
    assert line.km_post_at(at_m) == pytest.approx(wanted, abs=1e-6)


def test_posts_may_fall_along_the_line():
    line_m = np.arange(0.0, 2_001.0, 100.0)
    km_post = 90_000.0 - 1.001 * line_m - np.where(line_m >= 1_000.0, 500.0, 0.0)
    line = centre_line(on_map(line_m, line_m, np.zeros(len(line_m)), km_post))

    assert line.km_post_at(np.array([550.0, 999.0, 1_000.0])) == pytest.approx([89_449.45, 89_000.1, 88_499.0], abs=0.2)


def test_outside_the_survey_there_is_no_post():
    line = centre_line(on_map(np.array([100.0, 200.0]), np.array([0.0, 100.0]), np.zeros(2)))

    assert np.isnan(line.km_post_at(np.array([99.0, 100.0, 200.0, 201.0]))).tolist() == [True, False, False, True]


def test_a_survey_in_any_order_with_points_twice_is_the_same_line():
    route = on_map(RUN_M, NORTH_M, EAST_M)

    mixed = centre_line(pl.concat([route, route.head(7)]).sample(fraction=1.0, shuffle=True, seed=1))

    np.testing.assert_array_equal(mixed.line_m_P, centre_line(route).line_m_P)


@pytest.mark.parametrize("absent", [None, float("nan"), float("inf")])
def test_points_that_lack_a_coordinate_are_left_out(absent):
    route = on_map(RUN_M, NORTH_M, EAST_M)
    holed = route.with_columns(
        pl.when(pl.int_range(pl.len()) % 7 == 3).then(absent).otherwise("lat_deg").alias("lat_deg")
    )

    line = centre_line(holed)

    assert len(line.line_m_P) == 2 + (np.arange(len(RUN_M)) % 7 != 3).sum()
    assert np.isfinite(line.x_m_P).all()


@pytest.mark.parametrize("num_points", [0, 1])
def test_a_survey_without_length_is_no_line(num_points):
    assert centre_line(on_map(RUN_M, NORTH_M, EAST_M).head(num_points)) is None
    assert centre_line(None) is None


def test_coordinates_that_are_nowhere_near_are_on_no_line():
    line = centre_line(on_map(RUN_M, NORTH_M, EAST_M))

    assert not len(line.candidates(np.array([0.0, -89.0, 46.9]), np.array([0.0, 179.0, -172.6])).place_N)
