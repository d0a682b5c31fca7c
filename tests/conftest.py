"""What tests of several folders share: the running services, started once for the whole session."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

# How long an example takes is not what these tests are about, and a busy machine takes longer.
settings.register_profile("trackside", deadline=None)
settings.load_profile("trackside")


class RunningServices(NamedTuple):
    home: Path
    env: dict[str, str]
    """The variables of `pipelines.services.environment`; nothing is set in this process."""


@pytest.fixture(scope="session")
def services():
    """Run all services on free ports, in a home of their own.

    With TRACKSIDE_TEST_HOME, use that home and leave its services up: a second run then starts at once.
    """
    from pipelines import services

    kept = os.environ.get("TRACKSIDE_TEST_HOME")
    home = Path(kept or tempfile.mkdtemp(prefix="trackside-test-"))
    any_port = dict.fromkeys(("airflow", "mlflow", "store", "ray"), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKSIDE_SCHEDULE", "off")  # tests want the runs that they trigger, whatever the hour
        services.up(home, ports=any_port, wait_s=600)
    try:
        yield RunningServices(home=home, env=services.environment(home))
    finally:
        if not kept:
            services.down(home)
            for folder in (home, services.open_home(home).sockets):
                shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pressure_windows():
    """Windows of a main reservoir and a brake pipe whose pressures wander."""
    import numpy as np
    import polars as pl

    from pipelines.windows import WindowSet

    def make(*, train, validation, length):
        rng = np.random.default_rng(0)
        x_NLC = (8 + 0.1 * np.cumsum(rng.normal(size=(train + validation, length, 2)), axis=1)).astype(np.float32)
        return WindowSet(
            train_x=x_NLC[:train],
            train_y=None,
            validation_x=x_NLC[train:],
            validation_y=None,
            test_x=x_NLC[:0],
            test_y=None,
            test_index=pl.DataFrame({"vehicle": []}),
            channels=("res_bar", "pipe_bar"),
            targets=("res_bar",),
            table="tables/bundle",
            table_version=3,
            digest=hashlib.sha256(x_NLC.tobytes()).hexdigest(),
            vehicle_days=(("07", "2026-01-12"),),
            counts={"train": train, "validation": validation},
        )

    return make
