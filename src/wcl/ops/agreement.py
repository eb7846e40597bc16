"""Label-free measures of how well two representations of the same images agree.

The two are of two augmented views, or of two encoders. All compare images by the cosine.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def retrieval(queries: Tensor, keys: Tensor) -> dict[str, Tensor]:
    """Measure whether each query finds the key of its own row among all keys.

    Equal similarities count as misses, so that collapsed features retrieve nothing.

    Args:
        queries: (N, D) features of one view of N images.
        keys: (N, D) features of another view.

    Returns:
        retrieval_top1: fraction of queries whose own key is the most similar;
        retrieval_mrr: mean of 1 / the rank of a query's own key.
    """
    similarity = F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T
    rank = (similarity >= similarity.diagonal()[:, None]).sum(dim=1)
    return {
        "retrieval_top1": (rank == 1).float().mean(),
        "retrieval_mrr": (1 / rank).mean(),
    }


def neighbor_agreement(first: Tensor, second: Tensor, k: int = 10) -> Tensor:
    """Compute the mean fraction of k nearest neighbors that two representations share.

    Chance is k / (N − 1).

    Args:
        first, second: (N, D) and (N, E) features of the same N images.
        k: neighbors of each image among the others; at most N − 1.
    """
    one, two = _neighbors(first, k), _neighbors(second, k)
    return (one[:, :, None] == two[:, None, :]).any(dim=2).float().mean()


def _neighbors(features: Tensor, k: int) -> Tensor:
    rows = F.normalize(features, dim=1)
    similarity = (rows @ rows.T).fill_diagonal_(-torch.inf)
    return similarity.topk(min(k, len(rows) - 1), dim=1).indices


def rand_index(first: Tensor, second: Tensor) -> Tensor:
    """Compute the adjusted Rand index of two groupings (Hubert and Arabie, 1985).

    1 for equal groups, 0 on average for independent ones; 1 also if both are trivial.

    Args:
        first, second: (N,) group numbers.
    """
    _, first = first.unique(return_inverse=True)
    _, second = second.unique(return_inverse=True)
    columns = int(second.max()) + 1
    table = torch.bincount(first * columns + second, minlength=columns * (int(first.max()) + 1))
    table = table.view(-1, columns).double()
    both = _pairs(table).sum()
    one, two = _pairs(table.sum(dim=1)).sum(), _pairs(table.sum(dim=0)).sum()
    expected = one * two / _pairs(table.sum()).clamp(min=1)
    most = (one + two) / 2
    return torch.where(most == expected, 1.0, (both - expected) / (most - expected))


def _pairs(counts: Tensor) -> Tensor:
    return counts * (counts - 1) / 2
