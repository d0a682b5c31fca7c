import numpy as np
import pytest
import torch

from pipelines.models.classifier import TableClassifier
from pipelines.models.losses import member_cross_entropy


@pytest.fixture
def rows():
    """Rows of a healthy band and, one in twenty, of a fault far below it; a switch and a constant beside them."""
    generator = torch.Generator().manual_seed(3)
    is_fault_N = torch.rand(500, generator=generator) < 0.05
    pressure_N = 8 + 0.2 * torch.randn(500, generator=generator) - 3 * is_fault_N
    switch_N = (torch.rand(500, generator=generator) < 0.5).float()
    return torch.stack([pressure_N, switch_N, torch.full((500,), 5.0)], dim=1), is_fault_N.float()


def build(seed=0, num_features=3, **sizes):
    torch.manual_seed(seed)
    return TableClassifier(
        num_features=num_features, **{"members": 3, "width": 16, "layers": 2, "dropout": 0.1, **sizes}
    )


def fitted(x_NF, **sizes):
    model = build(**sizes)
    model.fit_statistics(x_NF)
    return model.eval()


def trained(x_NF, label_N, *, steps=100):
    model = build()
    model.fit_statistics(x_NF)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = member_cross_entropy(model.logits(x_NF), label_N)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def test_training_separates_a_fault_from_a_healthy_band(rows):
    x_NF, label_N = rows

    score_N = trained(x_NF, label_N)(x_NF)

    assert (score_N[label_N == 1] > 0.8).all()
    assert (score_N[label_N == 0] < 0.2).all()


def test_the_score_is_the_mean_probability_of_the_members(rows):
    x_NF, _ = rows
    model = fitted(x_NF)

    score_N = model(x_NF)

    assert ((score_N > 0) & (score_N < 1)).all()
    torch.testing.assert_close(score_N, model.logits(x_NF).sigmoid().mean(dim=1))


def test_members_start_out_different(rows):
    x_NF, _ = rows

    logit_NM = fitted(x_NF).logits(x_NF)

    assert logit_NM.shape == (500, 3)
    assert not torch.allclose(logit_NM[:, 0], logit_NM[:, 1])


def test_a_member_gets_no_gradient_from_the_others(rows):
    x_NF, label_N = rows
    model = fitted(x_NF)

    member_cross_entropy(model.logits(x_NF)[:, :1], label_N).backward()

    gradient_MIO = model.output.weight_MIO.grad
    assert gradient_MIO[0].abs().sum() > 0
    assert gradient_MIO[1:].abs().sum() == 0


@pytest.mark.parametrize(("factor", "offset"), [(1000.0, 0.0), (0.01, 3.0), (9 / 5, 32.0)])
def test_the_unit_of_a_feature_does_not_matter(rows, factor, offset):
    x_NF, _ = rows
    other_NF = x_NF * factor + offset

    score_N = fitted(x_NF)(x_NF)
    other_N = fitted(other_NF)(other_NF)

    torch.testing.assert_close(other_N, score_N, atol=2e-3, rtol=0)


def test_a_reading_beyond_all_training_rows_scores_like_the_furthest_of_them(rows):
    x_NF, _ = rows
    furthest_F, absurd_F = x_NF[0].clone(), x_NF[0].clone()
    furthest_F[0], absurd_F[0] = x_NF[:, 0].max(), torch.inf

    score_N = fitted(x_NF)(torch.stack([furthest_F, absurd_F]))

    assert score_N[0] == score_N[1]


def test_a_missing_feature_reads_as_its_median(rows):
    x_NF, _ = rows
    missing_F, median_F = x_NF[0].clone(), x_NF[0].clone()
    missing_F[0], median_F[0] = torch.nan, x_NF[:, 0].sort().values[250]

    score_N = fitted(x_NF)(torch.stack([missing_F, median_F]))

    assert score_N[0] == score_N[1]


def test_a_feature_that_is_constant_in_training_has_no_influence(rows):
    x_NF, _ = rows
    changed_NF = x_NF.clone()
    changed_NF[:, 2] = 77.0
    model = fitted(x_NF)

    assert torch.equal(model(x_NF), model(changed_NF))


def test_missing_training_values_are_refused(rows):
    x_NF, _ = rows
    x_NF[7, 1] = torch.nan

    with pytest.raises(ValueError, match="1 of 3 features have missing or infinite training values, first feature 1"):
        build().fit_statistics(x_NF)


@pytest.mark.parametrize("num_bins", [1, 5, 16])
def test_bins_cover_the_training_range_without_gaps(rows, num_bins):
    x_NF, _ = rows
    model = fitted(x_NF, num_bins=num_bins)

    end_FB = model.edge_FB + model.width_FB

    torch.testing.assert_close(model.edge_FB[:, 0], x_NF.min(dim=0).values)
    torch.testing.assert_close(end_FB[:, -1], x_NF.max(dim=0).values)
    torch.testing.assert_close(model.edge_FB[:, 1:], end_FB[:, :-1])


def test_the_exported_model_scores_batches_of_any_size(rows, tmp_path):
    x_NF, label_N = rows
    model = trained(x_NF, label_N, steps=5)

    program = torch.export.export(model, (x_NF[:2],), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()

    for num_rows in (1, 2, 3, 500):
        torch.testing.assert_close(loaded(x_NF[:num_rows]), model(x_NF[:num_rows]))


def test_bins_travel_in_the_state(rows):
    x_NF, _ = rows
    model, other = fitted(x_NF), build(seed=9).eval()

    other.load_state_dict(model.state_dict())

    assert torch.equal(other(x_NF), model(x_NF))


def test_cross_entropy_without_options_is_the_mean_over_rows_and_members():
    logit_NM, label_N = torch.tensor([[0.0, 2.0], [-1.0, 0.5]]), torch.tensor([1.0, 0.0])

    value = member_cross_entropy(logit_NM, label_N)

    probability_NM = 1 / (1 + np.exp(-logit_NM.numpy()))
    expected = -np.mean([*np.log(probability_NM[0]), *np.log(1 - probability_NM[1])])
    assert float(value) == pytest.approx(expected, rel=1e-6)


def test_a_positive_weight_counts_positive_rows_more():
    logit_NM = torch.zeros(2, 1)

    only_positive = member_cross_entropy(logit_NM[:1], torch.tensor([1.0]), positive_weight=3.0)
    only_negative = member_cross_entropy(logit_NM[:1], torch.tensor([0.0]), positive_weight=3.0)

    assert float(only_positive) == pytest.approx(3 * float(only_negative))


def test_label_smoothing_makes_certainty_costly():
    certain, label_N = torch.tensor([[30.0]]), torch.tensor([1.0])

    assert member_cross_entropy(certain, label_N) < 1e-6
    assert member_cross_entropy(certain, label_N, label_smoothing=0.1) > 1
