"""Weak labels: the connected components of the 1-nearest-neighbor graph of a batch.

Section 3.3 of the paper. Every row of a batch is linked to its nearest other row; rows that are
connected by such links, in either direction, share a label.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.ops.randomness import mix

# Rows of similarities held at a time. 512 rows against 4096 keys are 8 MB: they stay in the cache
# between the product and the search, and no N×N matrix is ever allocated.
_ROWS_AT_A_TIME = 512
_GROUP = 64


@torch.no_grad()
def nearest_neighbors(queries: Tensor, keys: Tensor, itself: Tensor | None = None) -> Tensor:
    """Return the most similar key of every query by cosine, the query itself excluded.

    Ties go to the lowest index. Equal keys always tie, although a matrix product may round the same
    row differently in different positions.

    Args:
        queries: (b, D) rows.
        keys: (N, D) rows, including the queries.
        itself: (b,) positions of the queries among the keys; None if both are the same rows.

    Returns:
        (b,) indices into keys.
    """
    if itself is None:
        itself = torch.arange(len(keys), device=keys.device)
    queries, keys = F.normalize(queries, dim=1), F.normalize(keys, dim=1)
    neighbors = torch.empty(len(queries), dtype=torch.long, device=queries.device)
    padded = len(keys) + -len(keys) % _GROUP
    block = queries.new_full((min(len(queries), _ROWS_AT_A_TIME), padded), -math.inf)
    for start in range(0, len(queries), _ROWS_AT_A_TIME):
        rows = queries[start : start + _ROWS_AT_A_TIME]
        similarity = block[: len(rows)]
        torch.mm(rows, keys.T, out=similarity[:, : len(keys)])
        similarity.scatter_(1, itself[start : start + len(rows), None], -math.inf)
        neighbors[start : start + len(rows)] = _first_largest(similarity)
    lowest, next_equal = _equal_rows(keys)
    neighbors = lowest[neighbors]
    return torch.where(neighbors == itself, next_equal[itself], neighbors)


def _first_largest(similarity: Tensor) -> Tensor:
    """Return (b,) the argmax of every row, the first of equal values.

    Takes the maxima of groups in one vectorized pass, then the argmax of two short rows. On a CPU
    this takes a third of the time of `argmax`, which would cost half as much as the product.
    """
    groups: Tensor = similarity.unflatten(1, (-1, _GROUP))
    group: Tensor = groups.amax(dim=2).argmax(dim=1)
    members: Tensor = groups[torch.arange(len(groups), device=groups.device), group]
    return group * _GROUP + members.argmax(dim=1)


def _equal_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (N,) the lowest and (N,) the next higher index of an equal row, or the row's own.

    Rows are sorted by a hash of their bits, on the device, and adjacent rows are compared.
    """
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()]
    bits = (rows + 0.0).view(integer)  # adding zero turns −0 into 0
    weights = mix(torch.arange(1, rows.shape[1] + 1, device=rows.device))
    order = (bits * weights).sum(dim=1).argsort(stable=True)
    follows = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    ordered = rows[order]
    follows[1:] = (ordered[1:] - ordered[:-1]).abs().amax(dim=1) == 0

    position = torch.arange(len(rows), device=rows.device)
    group_start = torch.where(follows, 0, position).cummax(dim=0).values
    following = torch.where(follows.roll(-1), position.roll(-1), position)
    lowest, next_equal = torch.empty_like(order), torch.empty_like(order)
    lowest[order] = order[group_start]
    next_equal[order] = order[following]
    return lowest, next_equal


def components(successor: Tensor) -> Tensor:
    """Find the connected components of the graph with the undirected edges (i, successor[i]).

    Every node has one outgoing edge, so each component has exactly one cycle, and the smallest node
    of that cycle labels the component. Pointer doubling finds it: after t rounds, `reached[i]` is
    the node 2ᵗ steps from i, and `smallest[i]` is the smallest of the 2ᵗ nodes from i on. Once
    2ᵗ ≥ N, every `reached[i]` is on its cycle, and `smallest` has covered that cycle. This holds
    for cycles of any length, so neither ties nor a floating-point product that is not quite
    symmetric can give a wrong component, and the host is not involved.

    Args:
        successor: (N,) indices.

    Returns:
        (N,) labels: the index of one member of the component, the same for all its members.

    >>> components(torch.tensor([1, 0, 3, 2, 2]))
    tensor([0, 0, 2, 2, 2])
    """
    reached = successor
    smallest = torch.arange(len(successor), device=successor.device)
    for _ in range(max(1, math.ceil(math.log2(len(successor))))):
        smallest = torch.minimum(smallest, smallest[reached])
        reached = reached[reached]
    return smallest[reached]


def components_by_scipy(successor: Tensor) -> Tensor:
    """Find the same components as the paper does: SciPy on the adjacency matrix of Eq. 5."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count = len(successor)
    adjacency = torch.zeros(count, count, dtype=torch.bool)
    adjacency[torch.arange(count), successor.cpu()] = True
    _, labels = connected_components(csr_array((adjacency | adjacency.T).numpy()), directed=False)
    return torch.as_tensor(labels, dtype=torch.long, device=successor.device)


@torch.no_grad()
def weak_labels(embeddings: Tensor, backend: Literal["pointer", "scipy"] = "pointer") -> Tensor:
    """Compute the weak labels of a batch, Eq. 5–6 and Algorithm 1: rows of a component share one.

    Args:
        embeddings: (N, D) rows, N ≥ 2; they need not be normalized.
        backend: `pointer` stays on the device; `scipy` is the reference used by the paper.

    Returns:
        (N,) labels. Only their equality is meaningful.

    Raises:
        ValueError: there are fewer than two rows, or a row is not finite.

    >>> weak_labels(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]))
    tensor([0, 0, 2, 2])
    """
    if backend not in ("pointer", "scipy"):
        raise ValueError(f"backend must be pointer or scipy, not {backend}")
    if embeddings.ndim != 2 or len(embeddings) < 2 or embeddings.shape[1] < 1:
        raise ValueError(
            f"weak labels need at least two rows (N, D), not {tuple(embeddings.shape)}"
        )
    if not torch.isfinite(torch.linalg.vector_norm(embeddings, dim=1)).all():
        raise ValueError("weak labels need finite embeddings, not NaN or infinity")
    find = {"pointer": components, "scipy": components_by_scipy}[backend]
    return find(nearest_neighbors(embeddings, embeddings))


def first_of_same(clusters: Tensor) -> Tensor:
    """Turn clusters of any numbers into weak labels: for each row, the first row of its cluster.

    Args:
        clusters: (N,) integers; a row with −1 is a cluster of its own.

    Returns:
        (N,) labels, each the index of a member of its cluster.

    >>> first_of_same(torch.tensor([7, -1, 3, 7, -1])).tolist()
    [0, 1, 2, 0, 4]
    """
    first = (clusters[:, None] == clusters).byte().argmax(dim=1)
    return torch.where(clusters >= 0, first, torch.arange(len(clusters), device=clusters.device))
