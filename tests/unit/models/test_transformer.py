from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pipelines.config import load_recipe
from pipelines.models import batch_loss, build_model, calibrate, fit_statistics, score_windows
from pipelines.models.transformer import TransformerForecaster

LENGTH = 120


@dataclass(frozen=True)
class Fleet:
    """Windows of a part that warms by friction: channels part_c, speed_mps, air_c."""

    train: np.ndarray
    healthy: np.ndarray
    hot: np.ndarray
    cold: np.ndarray


def warming(rng, num, *, friction=1.0, air_c=10.0):
    speed = np.repeat(rng.uniform(0, 30, size=(num, 6)), LENGTH // 6, axis=1)
    part = np.empty((num, LENGTH))
    part[:, 0] = air_c + rng.uniform(0, 25, size=num)
    for i in range(1, LENGTH):
        part[:, i] = part[:, i - 1] + 0.01 * friction * speed[:, i - 1] - 0.01 * (part[:, i - 1] - air_c)
    air = np.full((num, LENGTH), air_c)
    noise = rng.normal(0, 0.1, size=(2, num, LENGTH))
    return np.stack([part + noise[0], speed, air + noise[1]], axis=2).astype(np.float32)


@pytest.fixture(scope="module")
def fleet():
    rng = np.random.default_rng(4)
    return Fleet(
        train=warming(rng, 200),
        healthy=warming(rng, 100),
        hot=warming(rng, 100, friction=2.0),
        cold=warming(rng, 100, friction=0.3),
    )


def build(seed=0, temperatures=(0, 2)):
    torch.manual_seed(seed)
    return TransformerForecaster(
        length=LENGTH, num_channels=3, targets=(0,), temperatures=temperatures, width=16, layers=1, heads=2, dropout=0.0
    )


@pytest.fixture(scope="module")
def trained(fleet):
    model = build()
    fit_statistics(model, fleet.train)
    loss = batch_loss(load_recipe("smoke"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.from_numpy(fleet.train)
    for _ in range(80):
        optimiser.zero_grad()
        loss(model, x, None).backward()
        optimiser.step()
    calibrate(model, fleet.healthy)
    return model.eval()


def test_a_part_that_warms_too_fast_scores_above_all_healthy_ones(trained, fleet):
    hot, healthy = score_windows(trained, fleet.hot), score_windows(trained, fleet.healthy)

    assert np.mean(hot > healthy.max()) > 0.9


def test_a_part_that_stays_cold_is_no_anomaly(trained, fleet):
    assert np.median(score_windows(trained, fleet.cold)) < np.median(score_windows(trained, fleet.healthy))


def test_another_climate_changes_no_score(trained, fleet):
    warmer = fleet.healthy + np.array([25, 0, 25], dtype=np.float32)

    np.testing.assert_allclose(
        score_windows(trained, warmer), score_windows(trained, fleet.healthy), rtol=1e-2, atol=1e-2
    )


def test_what_the_target_did_after_the_first_segment_is_not_seen(fleet):
    model = build()
    fit_statistics(model, fleet.train)
    x = torch.from_numpy(fleet.healthy)
    segment = model.samples_per_segment
    hotter = x.clone()
    hotter[:, segment:, 0] += 5

    difference = (model.errors(hotter) - model.errors(x)) * model.change_K

    torch.testing.assert_close(difference, torch.full_like(difference, 5.0), rtol=1e-4, atol=1e-3)


def test_an_error_does_not_depend_on_later_segments(fleet):
    model = build(temperatures=())
    fit_statistics(model, fleet.train)
    x = torch.from_numpy(fleet.healthy)
    half = LENGTH // 2
    other = x.clone()
    other[:, half:] += 100

    num_before = half // model.samples_per_segment - 1
    torch.testing.assert_close(model.errors(other)[:, :num_before], model.errors(x)[:, :num_before])


def test_a_constant_channel_gives_finite_scores(fleet):
    still = fleet.train.copy()
    still[:, :, 1] = 0
    model = build()
    fit_statistics(model, still)

    assert np.isfinite(score_windows(model, still)).all()


def test_calibration_puts_a_hard_and_an_easy_target_on_one_scale():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, LENGTH, 2)).astype(np.float32).cumsum(axis=1) * np.array([1, 100], dtype=np.float32)
    torch.manual_seed(0)
    model = TransformerForecaster(
        length=LENGTH, num_channels=2, targets=(0, 1), width=8, layers=1, heads=1, dropout=0.0
    )
    fit_statistics(model, x)

    calibrate(model, x)

    assert score_windows(model, x).mean() == pytest.approx(1.0, rel=1e-3)


def test_the_oldest_samples_are_left_out_where_segments_do_not_fill_the_window():
    torch.manual_seed(0)
    model = TransformerForecaster(length=100, num_channels=1, targets=(0,), width=8, layers=1, heads=1, dropout=0.0)
    x = torch.randn(3, 100, 1)
    other = x.clone()
    other[:, : 100 % model.samples_per_segment] += 7

    torch.testing.assert_close(model(other), model(x))


def test_an_exported_model_scores_batches_of_another_size_the_same(trained, fleet, tmp_path):
    example = torch.from_numpy(fleet.train[:4])
    exported = torch.export.export(trained, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(exported, tmp_path / "model.pt2")

    scores = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(fleet.healthy))

    torch.testing.assert_close(scores, torch.from_numpy(score_windows(trained, fleet.healthy)))


def test_the_same_seed_gives_the_same_weights_and_another_seed_gives_others():
    recipe = load_recipe("smoke")

    def weights(seed):
        torch.manual_seed(seed)
        return build_model(recipe, 3).state_dict()["embed.weight"]

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_the_recipe_decides_which_channels_are_temperatures():
    model = build_model(load_recipe("hot_bearing"), 3)

    assert model.surroundings == [2]
    assert model.hot_only_K.tolist() == [True]
