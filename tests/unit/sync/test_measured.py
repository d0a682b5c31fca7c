import numpy as np
import pytest

from pipelines.ingest import bundle
from pipelines.simulate.fleet import write_bundle
from pipelines.simulate.trip import simulate_trip
from pipelines.sync import synchronise


@pytest.fixture(scope="module", params=[7, 12])
def pair(request, tmp_path_factory):
    trip = simulate_trip(seed=request.param, vehicle=1, aba_rate_hz=20.0)
    folder = tmp_path_factory.mktemp("trip") / trip.trip_id
    write_bundle(trip, folder)
    return trip, synchronise(bundle.read_bundle(str(folder)))


def test_what_a_lying_server_said_is_not_believed_and_most_of_the_rest_is(pair):
    trip, synced = pair
    liars = trip.truth.facts["lying_servers"]

    assert synced.measured
    for own in synced.measured.values():
        for number, server in enumerate(own.servers):
            believed = own.is_believed_X[own.server_X == number]
            assert not believed.any() if server in liars else believed.mean() > 0.9, server


def test_residuals_are_small_beside_the_round_trip(pair):
    _, synced = pair

    for own in synced.measured.values():
        residual_ns_X = np.abs(own.residual_ns_X[own.is_believed_X])
        assert np.median(residual_ns_X) < np.median(own.reach_ns_X[own.is_believed_X])


def test_clocks_were_set_when_they_were(pair):
    trip, synced = pair

    for clock_id in synced.measured:
        true_ns = [step["t_utc_ns"] for step in trip.truth.facts["clocks"][clock_id]["steps"]]
        found_ns = synced.calibration.maps[clock_id].set_ns
        assert np.abs(found_ns - np.array(true_ns, dtype=np.int64)).max(initial=0) < 2e9, clock_id
