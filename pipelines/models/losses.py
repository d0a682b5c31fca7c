"""What classifiers are trained to make small.

Shape suffixes: N = rows, M = members of an ensemble.
"""

from torch import Tensor
from torch.nn import functional


def member_cross_entropy(
    logit_NM: Tensor, label_N: Tensor, *, label_smoothing: float = 0.0, positive_weight: float = 1.0
) -> Tensor:
    """Mean binary cross-entropy over rows and members: each member learns alone, none leans on another.

    Args:
        logit_NM: Logit of the positive class that each member gives each row.
        label_N: 1.0 for the positive class, 0.0 for the other.
        label_smoothing: How far labels are moved towards one half, as a share of one half.
        positive_weight: Weight of a positive row; a negative one has 1. Other than 1, scores are no probabilities.
    """
    target_N = label_N * (1 - label_smoothing) + label_smoothing / 2
    weight_N = 1 + (positive_weight - 1) * label_N
    return functional.binary_cross_entropy_with_logits(
        logit_NM, target_N[:, None].expand_as(logit_NM), weight=weight_N[:, None]
    )
