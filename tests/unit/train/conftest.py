import pytest

from pipelines.config import parse_recipe
from pipelines.storage import join
from pipelines.train.jobs import Cluster
from pipelines.train.plan import make_plan
from pipelines.windows import save_windows

TWO_CPUS = Cluster(num_cpus=2, source="test")


@pytest.fixture
def recipe():
    return parse_recipe(
        {
            "name": "tiny",
            "source": "bundle",
            "window": {
                "length_s": 16.0,
                "stride_s": 8.0,
                "rate_hz": 1.0,
                "channels": ["res_bar", "pipe_bar"],
                "targets": ["res_bar"],
            },
            "model": {"kind": "transformer_forecaster", "width": 8, "layers": 1, "heads": 2, "dropout": 0.1},
            "train": {
                "workers": 1,
                "epochs": 3,
                "batch_per_worker": 16,
                "reference_batch": 16,
                "warmup_steps": 2,
                "checkpoint_every_steps": 4,
            },
            "gate": {"metric": "pr_auc", "minimum": 0.5},
        },
        where="tiny",
    )


@pytest.fixture
def windows(pressure_windows):
    """A hundred windows to train on."""
    return pressure_windows(train=100, validation=20, length=16)


@pytest.fixture
def make(tmp_path, recipe, windows):
    """Plan a training in a folder of its own."""

    def plan(run_key="run", *, cluster=TWO_CPUS, recipe=recipe):
        run = str(tmp_path / run_key)
        made = make_plan(save_windows(join(run, "windows"), windows), recipe, run_key, cluster, location=run)
        made.save()
        return made

    return plan
