import pytest

from pipelines.ingest import bundle
from pipelines.simulate.fleet import write_bundle
from pipelines.simulate.trip import simulate_trip


@pytest.fixture(scope="session")
def short_trip():
    """A trip of three minutes."""
    return simulate_trip(seed=3, trip_minutes=3.0, aba_rate_hz=50.0)


@pytest.fixture(scope="session")
def short_bundle(short_trip, tmp_path_factory):
    """Its bundle; not to be changed."""
    folder = tmp_path_factory.mktemp("short") / short_trip.trip_id
    write_bundle(short_trip, folder)
    return folder


@pytest.fixture(scope="session")
def short(short_bundle):
    """The recording that is read from it."""
    return bundle.read_bundle(str(short_bundle))
