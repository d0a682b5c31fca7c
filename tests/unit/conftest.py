"""What tests of several modules share: published recordings, a lake, an MLflow, a small fleet, a finished training."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

RECIPE = """
name = "short_trips"
source = "bundle"
events = "hot_bearing"
seed = 1

[window]
length_s = 60.0
stride_s = 20.0
rate_hz = 1.0
channels = ["tmp_bearing_c", "dop_speed_mps"]
targets = ["tmp_bearing_c"]

[model]
kind = "transformer_forecaster"
width = 8
layers = 1
heads = 2

[train]
workers = 1
epochs = 1
batch_per_worker = 16
reference_batch = 16
warmup_steps = 1

[gate]
metric = "pr_auc"
minimum = 0.0
beat_baselines = false
"""


MLFLOW_WARNS_OF_ITSELF = ("ignore:.*noload:DeprecationWarning", "ignore:.*Any type hint is inferred:UserWarning")
"""The database and the models are the server's business; in this process its own habits would be errors."""


def pytest_collection_modifyitems(items):
    for item in items:
        if "mlflow" in getattr(item, "fixturenames", ()):
            for warning in MLFLOW_WARNS_OF_ITSELF:
                item.add_marker(pytest.mark.filterwarnings(warning))


SHARED_DATA = Path(os.environ.get("TRACKSIDE_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="session")
def real_data():
    """Find a published recording, to be read in place; where it is absent, the test is skipped."""

    def find(*parts):
        path = SHARED_DATA.joinpath(*parts)
        if not path.exists():
            pytest.skip(f"real data {'/'.join(parts)} is not here")
        return path

    return find


class Job(NamedTuple):
    """A finished main job."""

    lake: Path
    recipe: str
    windows: str
    plan: str
    report: str
    candidate: str


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """An empty lake; no service is known."""
    monkeypatch.setenv("TRACKSIDE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("TRACKSIDE_HOME", str(tmp_path / "home"))
    for name in ("MLFLOW_TRACKING_URI", "TRACKSIDE_RAY_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "lake"


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """Four short trips of one vehicle, whose bearing runs hot on the last two days."""
    from pipelines.simulate import simulate_fleet

    folder = tmp_path_factory.mktemp("fleet")
    simulate_fleet(folder, seed=3, vehicles=1, days=4, trip_minutes=5, aba_rate_hz=20, clean=True)
    return folder


@pytest.fixture(scope="session")
def mlflow_database(tmp_path_factory):
    """A database as a server has; making its tables takes seconds, so all tests share it and use names of their own."""
    return tmp_path_factory.mktemp("mlflow") / "mlflow.db"


@pytest.fixture(scope="module")
def mlflow(mlflow_database):
    """MLflow is that database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(mlflow_database.parent)  # artifacts lie beside it
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{mlflow_database}")
        yield


@pytest.fixture(scope="session")
def finished_job(fleet, mlflow_database, tmp_path_factory):
    from pipelines import steps

    folder = tmp_path_factory.mktemp("job")
    recipe = folder / "short_trips.toml"
    recipe.write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKSIDE_LAKE", str(folder / "lake"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{mlflow_database}")
        patch.chdir(mlflow_database.parent)
        patch.delenv("TRACKSIDE_RAY_URL", raising=False)
        for batch in steps.vehicle_days(steps.land(str(fleet))):
            steps.publish(steps.validate(steps.synchronise(batch)))
        windows = steps.build_windows(recipe=str(recipe), run_key="first")
        plan = steps.plan(windows)
        steps.train(plan)
        report = steps.evaluate(plan)
        candidate = steps.register(plan, report)
        steps.promote(candidate, report, key="first", decided_by="ada")
    return Job(folder / "lake", str(recipe), windows, plan, report, candidate)


@pytest.fixture
def job(mlflow, finished_job, monkeypatch):
    """The fleet was published, trained on and promoted; all in the lake that is now in use."""
    monkeypatch.setenv("TRACKSIDE_LAKE", str(finished_job.lake))
    monkeypatch.delenv("TRACKSIDE_RAY_URL", raising=False)
    return finished_job


@pytest.fixture
def serve():
    """Start servers on this machine: `serve(answer)`, where `answer(method, path, body)` is (status, content)."""
    servers = []

    def start(answer):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = answer(self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def nobody():
    """Address of a port where nobody listens."""
    return "http://127.0.0.1:9"
