import pytest

from pipelines.errors import CapacityError, ConfigError
from pipelines.storage import join
from pipelines.train.jobs import Cluster
from pipelines.train.plan import load_plan, make_plan
from pipelines.windows import save_windows


def test_a_stored_plan_comes_back_as_it_was(make):
    plan = make()

    assert load_plan(plan.save()) == plan


def test_the_recipe_decides_where_the_cluster_has_room(make, recipe):
    plan = make(cluster=Cluster(num_cpus=8, source="test"), recipe=recipe.override(workers=3))

    assert (plan.workers, plan.global_batch, plan.backend) == (3, 48, "gloo")
    assert plan.total_steps == 3 * 3  # 100 examples in batches of 48
    assert plan.reasons[0] == "3 workers: the recipe asks for 3"


def test_there_are_never_more_workers_than_cpus(make, recipe):
    plan = make(recipe=recipe.override(workers=5))

    assert plan.workers == 2
    assert "the cluster has 2 CPUs (test)" in plan.reasons[0]


def test_there_are_never_more_workers_than_memory_holds(make, recipe):
    plan = make(cluster=Cluster(num_cpus=8, memory_bytes=1.2 * 2**30, source="t"), recipe=recipe.override(workers=4))

    assert plan.workers == 2
    assert "1.2 GiB hold 2 of 0.44 GiB each" in plan.reasons[0]


def test_there_are_never_more_workers_than_batches(make, recipe):
    plan = make(cluster=Cluster(num_cpus=64, source="t"), recipe=recipe.override(workers=40))

    assert plan.workers == 6
    assert "100 examples fill no more batches of 16" in plan.reasons[0]


def test_a_cluster_without_room_is_waited_for(make):
    with pytest.raises(CapacityError, match="at least 1 worker, but the cluster has 0 CPUs") as raised:
        make(cluster=Cluster(num_cpus=0, source="Ray, 0 nodes"))

    assert raised.value.retryable


@pytest.mark.parametrize(("scaling", "expected"), [("linear", 2e-3), ("none", 1e-3)])
def test_the_learning_rate_follows_the_global_batch_if_the_recipe_says_so(make, recipe, scaling, expected):
    plan = make(recipe=recipe.override(workers=2, lr_scaling=scaling))

    assert plan.learning_rate == pytest.approx(expected)


def test_gpus_are_used_only_if_every_worker_gets_one(make, recipe):
    two = recipe.override(workers=2)

    assert make("a", cluster=Cluster(num_cpus=8, num_gpus=2), recipe=two).backend == "nccl"
    assert make("b", cluster=Cluster(num_cpus=8, num_gpus=1), recipe=two).backend == "gloo"


def test_windows_without_examples_are_refused(tmp_path, recipe, windows):
    from dataclasses import replace

    empty = replace(windows, validation_x=windows.validation_x[:0])
    location = save_windows(join(str(tmp_path), "windows"), empty)

    with pytest.raises(ConfigError, match="100 training and 0 validation examples"):
        make_plan(location, recipe, "run", Cluster(num_cpus=2), location=str(tmp_path))
