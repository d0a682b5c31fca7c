"""An ensemble of small networks that labels the rows of a table.

Networks on standardised features are weak where one feature matters in steps ("the pressure never fell below 8 bar"),
which is why trees often beat them on tables. Each feature is therefore encoded piecewise linearly, on bins of its own
that the training rows decide (Gorishniy et al. 2022, "On embeddings for numerical features"); the first layer then
learns any piecewise linear function of each feature. The encoding is part of the model, which takes raw values in any
unit, and it is constant beyond the range of the training rows: no reading, however wrong, carries a score away.

Shape suffixes: N = rows, F = features, B = bins of a feature, E = edges of its bins, M = members, I / O = inputs /
outputs of a layer.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class TableClassifier(nn.Module):
    """Members that differ in their initial weights and dropout; their mean probability is the score of a row."""

    def __init__(
        self, *, num_features: int, num_bins: int = 16, members: int, width: int, layers: int, dropout: float
    ) -> None:
        """Build with random weights; `fit_statistics` must see the training rows before the first step.

        Args:
            num_features: Columns of the table.
            num_bins: Bins of each feature's encoding.
            members: Networks of the ensemble.
            width: Features of each hidden layer.
            layers: Hidden layers.
            dropout: Share of the hidden features dropped while training.
        """
        super().__init__()
        self.dropout = dropout
        inputs = [num_features * num_bins, *[width] * (layers - 1)]
        self.hidden = nn.ModuleList(_MemberLinear(members, size, width) for size in inputs)
        self.output = _MemberLinear(members, width, 1)
        self.edge_FB: Tensor
        self.width_FB: Tensor
        self.median_F: Tensor
        self.register_buffer("edge_FB", torch.zeros(num_features, num_bins))
        self.register_buffer("width_FB", torch.ones(num_features, num_bins))
        self.register_buffer("median_F", torch.zeros(num_features))

    def forward(self, x_NF: Tensor) -> Tensor:
        """Return ``score_N``, the probability of the positive class; a missing feature (NaN) reads as its median."""
        return self.logits(x_NF).sigmoid().mean(dim=1)

    def logits(self, x_NF: Tensor) -> Tensor:
        """Return ``logit_NM``; each member is trained on its own logit, so that members stay different."""
        encoded_NI = self._encode(x_NF).flatten(1)
        hidden_MNI = encoded_NI.expand(self.output.num_members, -1, -1)
        for layer in self.hidden:
            hidden_MNI = functional.dropout(functional.relu(layer(hidden_MNI)), self.dropout, self.training)
        logit_MN1: Tensor = self.output(hidden_MNI)
        return logit_MN1.squeeze(2).T

    @torch.no_grad()
    def fit_statistics(self, x_NF: Tensor) -> None:
        """Take bins and medians of the features from training rows, which must be finite.

        The bins of a feature hold equally many training rows. Where many rows have the same value, as a switch has,
        some bins are empty; they stay without influence.
        """
        if not (is_finite_F := x_NF.isfinite().all(dim=0)).all():
            raise ValueError(
                f"{int((~is_finite_F).sum())} of {len(is_finite_F)} features have missing or infinite training values, "
                f"first feature {int((~is_finite_F).nonzero()[0])}; leave such rows out"
            )
        sorted_NF = x_NF.sort(dim=0).values
        num_edges = self.edge_FB.shape[1] + 1
        rank_E = torch.linspace(0, len(x_NF) - 1, num_edges, device=x_NF.device).round().long()
        edge_FE = sorted_NF[rank_E].T
        self.edge_FB.copy_(edge_FE[:, :-1])
        self.width_FB.copy_(edge_FE.diff(dim=1))
        self.median_F.copy_(sorted_NF[len(x_NF) // 2])

    def _encode(self, x_NF: Tensor) -> Tensor:
        """How far into each of its bins a feature reaches: -1/2 not at all, 1/2 through it, 0 if the bin is empty."""
        known_NF = torch.where(x_NF.isnan(), self.median_F, x_NF)
        is_empty_FB = self.width_FB <= 0
        reach_NFB = (known_NF[:, :, None] - self.edge_FB) / self.width_FB.masked_fill(is_empty_FB, 1.0)
        return (reach_NFB.clamp(0.0, 1.0) - 0.5).masked_fill(is_empty_FB, 0.0)


class _MemberLinear(nn.Module):
    """One linear layer a member, computed together; initial weights as in `nn.Linear`."""

    def __init__(self, num_members: int, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        bound = num_inputs**-0.5
        self.num_members = num_members
        self.weight_MIO = nn.Parameter(torch.empty(num_members, num_inputs, num_outputs).uniform_(-bound, bound))
        self.bias_M1O = nn.Parameter(torch.empty(num_members, 1, num_outputs).uniform_(-bound, bound))

    def forward(self, x_MNI: Tensor) -> Tensor:
        return torch.baddbmm(self.bias_M1O, x_MNI, self.weight_MIO)
