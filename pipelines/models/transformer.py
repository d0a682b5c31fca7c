"""A Transformer that says what targets should have read, given how a window began and all that drove them since.

A forecaster that sees the recent readings of a slowly heating bearing follows them and finds nothing wrong. This one
sees of each target only the first segment of the window; from there on it has the other channels (speed, weather,
switches) and must work out where they took the target. What the target did beyond that is the error, and a window's
mean squared error is its anomaly score.

Shape suffixes: N = windows, L = samples per window, S = segments per window, C = channels, K = targets, W = width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

MAX_SEGMENTS = 30
"""A window is averaged over this many segments or fewer: attention costs their square, and averaging removes noise."""

_SMALLEST_SCALE = 1e-6
"""Stands for the scale of a channel that never changed, so that nothing is divided by zero."""


class TransformerForecaster(nn.Module):
    """Causal pre-norm encoder over the segments of a window; takes raw physical values."""

    def __init__(
        self,
        *,
        length: int,
        num_channels: int,
        targets: tuple[int, ...],
        temperatures: tuple[int, ...] = (),
        width: int,
        layers: int,
        heads: int,
        dropout: float,
    ) -> None:
        """Build with random weights; `fit_statistics` must see the training windows before the first step.

        Args:
            length: Samples of a window.
            num_channels: Channels of a window.
            targets: Positions of the targets among the channels.
            temperatures: Positions of channels on a scale without a natural zero; see `_relative`.
            width: Features of a segment inside the network.
            layers: Encoder blocks.
            heads: Attention heads of a block.
            dropout: Share of the features dropped while training.
        """
        super().__init__()
        self.samples_per_segment = -(-length // MAX_SEGMENTS)
        self.num_segments = length // self.samples_per_segment
        self.targets = list(targets)
        self.temperatures = list(temperatures)
        self.surroundings = [c for c in temperatures if c not in targets]
        self.embed = nn.Linear(num_channels, width)
        self.position_SW = nn.Parameter(torch.randn(self.num_segments, width) * 0.02)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.level_and_rate = nn.Linear(width, 2 * len(targets))
        self.mean_C: Tensor
        self.std_C: Tensor
        self.change_K: Tensor
        self.usual_error_K: Tensor
        self.hot_only_K: Tensor
        self.register_buffer("mean_C", torch.zeros(num_channels))
        self.register_buffer("std_C", torch.ones(num_channels))
        self.register_buffer("change_K", torch.ones(len(targets)))
        self.register_buffer("usual_error_K", torch.ones(len(targets)))
        self.register_buffer("hot_only_K", torch.tensor([c in temperatures for c in targets]))

    def forward(self, x_NLC: Tensor) -> Tensor:
        """Return the anomaly score of each window, ``score_N``.

        It is the mean squared error over segments and targets, each target in units of its usual error (see
        `models.calibrate`). Of a temperature only the excess counts, because a part that stays cooler than expected
        carries less load but is not failing.
        """
        error_NSK = self.errors(x_NLC) / self.usual_error_K
        return torch.where(self.hot_only_K, error_NSK.clamp(min=0), error_NSK).square().mean(dim=(1, 2))

    def errors(self, x_NLC: Tensor) -> Tensor:
        """Return measured minus expected from the second segment on, in units of the target's change within a window.

        The mean square is the training loss: 0 is perfect, 1 is no better than "it stays as it was".
        """
        x_NSC = self._segments(x_NLC)
        return (self._change(x_NSC) - self._expected_change(x_NSC))[:, 1:]

    @torch.no_grad()
    def fit_statistics(self, x_NLC: Tensor) -> None:
        """Take level and spread of the channels from the training windows."""
        x_NSC = self._segments(x_NLC)
        relative_NSC = self._relative(x_NSC)
        change_NSK = x_NSC[:, 1:, self.targets] - x_NSC[:, :1, self.targets]
        self.mean_C.copy_(relative_NSC.mean(dim=(0, 1)))
        self.std_C.copy_(relative_NSC.std(dim=(0, 1)).clamp(min=_SMALLEST_SCALE))
        self.change_K.copy_(change_NSK.square().mean(dim=(0, 1)).sqrt().clamp(min=_SMALLEST_SCALE))

    def _segments(self, x_NLC: Tensor) -> Tensor:
        """Means of the segments; the oldest samples are left out where the segments do not fill the window."""
        num_used = self.num_segments * self.samples_per_segment
        used_NLC = x_NLC[:, x_NLC.shape[1] - num_used :]
        return used_NLC.reshape(-1, self.num_segments, self.samples_per_segment, x_NLC.shape[2]).mean(dim=2)

    def _relative(self, x_NSC: Tensor) -> Tensor:
        """Temperatures as differences to the lowest temperature of the surroundings in the window.

        Heat flows along differences; degrees Celsius have no zero of their own. Without this the model knows only the
        weather of the training days, and the first warm day looks like a fleet of hot bearings. The lowest, because the
        sun warms a rail above the air, never below it.
        """
        if not self.surroundings:
            return x_NSC
        relative_NSC = x_NSC.clone()
        air_N11 = x_NSC[:, :, self.surroundings].amin(dim=(1, 2), keepdim=True)
        relative_NSC[:, :, self.temperatures] = x_NSC[:, :, self.temperatures] - air_N11
        return relative_NSC

    def _change(self, x_NSC: Tensor) -> Tensor:
        return (x_NSC[:, :, self.targets] - x_NSC[:, :1, self.targets]) / self.change_K

    def _expected_change(self, x_NSC: Tensor) -> Tensor:
        """Change of the targets since the first segment, in units of `change_K`.

        One part follows the other channels at once, as a current does; the other accumulates, as heat and air do.
        """
        normal_NSC = (self._relative(x_NSC) - self.mean_C) / self.std_C
        seen_NSC = normal_NSC.clone()
        seen_NSC[:, :, self.targets] = normal_NSC[:, :1, self.targets]
        hidden_NSW = self.embed(seen_NSC) + self.position_SW
        for block in self.blocks:
            hidden_NSW = block(hidden_NSW)
        level_NSK, rate_NSK = self.level_and_rate(self.norm(hidden_NSW)).chunk(2, dim=-1)
        expected_NSK: Tensor = level_NSK + rate_NSK.cumsum(dim=1) * (4 / self.num_segments)
        return expected_NSK


class _Block(nn.Module):
    """Attention over this and earlier segments, then a two-layer perceptron, each added to what came in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x_NSW: Tensor) -> Tensor:
        x_NSW = x_NSW + self._attend(self.norm_attention(x_NSW))
        mixed_NSW: Tensor = x_NSW + self.mlp(self.norm_mlp(x_NSW))
        return mixed_NSW

    def _attend(self, x_NSW: Tensor) -> Tensor:
        query, key, value = (self._by_head(part_NSW) for part_NSW in self.query_key_value(x_NSW).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        mixed_NSW: Tensor = self.mix(seen.transpose(1, 2).flatten(2))
        return mixed_NSW

    def _by_head(self, x_NSW: Tensor) -> Tensor:
        """Divide the width between the heads: (N, S, W) to (N, heads, S, W / heads)."""
        num_segments, width = x_NSW.shape[1:]
        return x_NSW.reshape(-1, num_segments, self.heads, width // self.heads).transpose(1, 2)
