"""What must be reached on trips of every level: the bars of `pipelines.bench.accuracy`."""

from functools import cache

import numpy as np
import pytest

from pipelines.bench import accuracy
from pipelines.bench.sync import put_right
from pipelines.simulate import LEVELS, simulate_trip

SEEDS = (11, 12)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Bars that a trip misses, and the errors of its radar's rows, by level and seed."""

    @cache
    def result(name, seed):
        trip = simulate_trip(seed=seed, vehicle=seed % 3, aba_rate_hz=50.0, difficulty=LEVELS[name])
        done = put_right(trip, tmp_path_factory.mktemp("trip"))
        return accuracy.missed(done.score, trip, LEVELS[name]), accuracy.time_errors_ms(trip, done.rows)["dop"]

    return result


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEVELS)
def test_every_bar_is_kept_on_every_trip(results, name, seed):
    missed, _ = results(name, seed)

    assert missed == []


def test_clocks_tied_by_speed_alone_keep_their_bar_on_all_trips_together(results):
    errors_ms = np.concatenate([results(name, seed)[1] for name in LEVELS for seed in SEEDS])

    assert accuracy.missed_together(errors_ms) == []
