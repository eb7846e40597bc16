"""The Sinkhorn–Knopp algorithm: soft assignments of equal size (Cuturi, 2013)."""

import torch
from torch import Tensor


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign N rows to P columns such that all columns receive the same share.

    Starting from exp(scores / ε), columns are scaled to sum to N / P and rows to sum to 1, in
    turns (Caron et al., 2020, Eq. 3–5).

    Args:
        scores: (N, P).
        epsilon: smoothness; small values make the assignments hard.
        iterations: number of turns.

    Returns:
        (N, P) assignments; every row sums to 1.

    >>> sinkhorn(torch.zeros(2, 4))[0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    rows, columns = scores.shape
    # A constant factor cancels; without it exp would overflow for scores of unusual size.
    assignment = torch.exp((scores - scores.max()) / epsilon)
    for _ in range(iterations):
        assignment = assignment / assignment.sum(dim=0) * (rows / columns)
        assignment = assignment / assignment.sum(dim=1, keepdim=True)
    return assignment
