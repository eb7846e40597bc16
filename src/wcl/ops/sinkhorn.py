"""The Sinkhorn–Knopp algorithm: soft assignments of equal size (Cuturi, 2013)."""

import torch
from torch import Tensor


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign N rows to P columns such that all columns receive the same share.

    Starting from exp(scores / ε), columns are scaled to sum to N / P and rows to sum to 1, in
    turns (Caron et al., 2020, Eq. 3–5). Logarithms keep this finite for any ε.

    Args:
        scores: (N, P).
        epsilon: smoothness; small values make the assignments hard.
        iterations: number of turns.

    Returns:
        (N, P) assignments; every row sums to 1.

    >>> sinkhorn(torch.zeros(2, 4))[0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    logs = scores / epsilon  # the factor N / P of the columns cancels in the rows
    for _ in range(iterations):
        logs = logs - torch.logsumexp(logs, dim=0)
        logs = logs - torch.logsumexp(logs, dim=1, keepdim=True)
    return torch.exp(logs)
