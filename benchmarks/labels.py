"""Weak labels of a batch against the similarity product alone, and against SciPy."""

import torch
import torch.nn.functional as F

from benchmarks.timing import medians
from wcl.ops.weak_labels import nearest_neighbors, weak_labels

_ROWS, _DIMENSIONS = 4096, 128


def measure(rounds: int) -> dict[str, float]:
    """Return the ratios at N = 4096, D = 128.

    `scipy_over_ours` compares with the paper's procedure, which builds the adjacency matrix of
    Eq. 5; `scipy_sparse_over_ours` with our neighbor search and a sparse graph of N edges.
    """
    rows = torch.randn(_ROWS, _DIMENSIONS, generator=torch.Generator().manual_seed(0))
    normal = F.normalize(rows, dim=1)
    seconds = medians(
        {
            "product": lambda: normal @ normal.T,
            "ours": lambda: weak_labels(rows),
            "scipy": lambda: weak_labels(rows, backend="scipy"),
            "scipy_sparse": lambda: _sparse(rows),
        },
        rounds,
    )
    return {
        "over_product": seconds["ours"] / seconds["product"],
        "scipy_over_ours": seconds["scipy"] / seconds["ours"],
        "scipy_sparse_over_ours": seconds["scipy_sparse"] / seconds["ours"],
    } | {f"{name}_ms": 1000 * value for name, value in seconds.items()}


def _sparse(rows: torch.Tensor) -> object:
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = np.arange(len(rows))
    edges = (np.ones(len(rows)), (nodes, nearest_neighbors(rows, rows).numpy()))
    return connected_components(coo_array(edges, shape=(len(rows),) * 2), directed=False)
