"""Exact nearest-neighbor search in bounded memory, on any device."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

# Similarities held at a time: 51 MB in float32, the fastest of several sizes on two cores. (Rows
# whose length is a power of two would compete for the same cache lines: 142 instead of 152 GFLOPS.)
_KEYS_AT_A_TIME = 196 * 64
_QUERIES_AT_A_TIME = 2**10
# Number of keys whose similarities are reduced to their maximum before anything is sorted.
_GROUP = 16
# MKL multiplies fewer queries than this with another kernel, which rounds differently. Padding with
# zeros makes the neighbors of a query independent of the number of queries.
_MIN_QUERIES = 16


def nearest(
    queries: Tensor,
    keys: Tensor,
    k: int,
    itself: Tensor | None = None,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k most similar keys of every query, most similar first, ties by ascending index.

    Works block by block, so that memory stays bounded; keys in half precision are converted a block
    at a time. Within a block, only the k groups of keys with the highest maxima can hold the k
    highest similarities, so only those are sorted: one cheap pass replaces a partial sort of all.

    Args:
        queries: (Q, D) features.
        keys: (N, D) features.
        k: number of neighbors, at most the number of keys other than the query itself.
        itself: (Q,) for each query its own index among the keys, which is excluded.
        device: where to compute; None for the device of the queries.

    Returns:
        (Q, k) cosines and (Q, k) indices into keys, on the device of the queries.
    """
    available = len(keys) - (itself is not None)
    if not 1 <= k <= available:
        raise ValueError(f"k = {k} neighbors of {available} candidates")
    numbers = torch.arange(len(keys), device=keys.device)
    blocks = zip(key_blocks(numbers), key_blocks(keys), strict=True)
    return nearest_in_blocks(queries, blocks, k, itself, device=device)


def key_blocks(keys: Tensor) -> tuple[Tensor, ...]:
    """Split keys, or their numbers, into the blocks that are compared with queries at a time."""
    return torch.split(keys, _KEYS_AT_A_TIME)


def nearest_in_blocks(
    queries: Tensor,
    blocks: Iterable[tuple[Tensor, Tensor]],
    k: int,
    itself: Tensor | None = None,
    query_rows: Tensor | None = None,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `nearest` returns, for keys that arrive block by block.

    Args:
        queries: (Q, D) features.
        blocks: (n,) numbers of keys, ascending across blocks, and their (n, D) features; in total
            at least k keys other than the query itself.
        k: number of neighbors.
        itself: for each query its own number among the keys, which is excluded.
        query_rows: the rows of `queries` to search for; None for all.
        device: where to compute; None for the device of the queries.
    """
    device = device or queries.device
    count = len(queries) if query_rows is None else len(query_rows)
    best = torch.full((count, k), -math.inf, dtype=_wide(queries.dtype), device=device)
    index = torch.zeros(count, k, dtype=torch.long, device=device)
    for numbers, keys in blocks:
        numbers, block = numbers.to(device), _unit(keys, device)
        for start in range(0, count, _QUERIES_AT_A_TIME):
            rows = slice(start, start + _QUERIES_AT_A_TIME)
            some = queries[rows] if query_rows is None else queries[query_rows[rows]]
            own = None if itself is None else itself[rows].to(device)
            cosine, at = _nearest_in_block(_unit(some, device), block, k, own, numbers)
            # Earlier blocks first: they have the lower numbers.
            cosine, at = torch.cat([best[rows], cosine], dim=1), torch.cat([index[rows], at], dim=1)
            order = _first_highest(cosine, k)
            best[rows], index[rows] = cosine.gather(1, order), at.gather(1, order)
    return best.to(queries.device), index.to(queries.device)


def _nearest_in_block(
    queries: Tensor, keys: Tensor, k: int, itself: Tensor | None, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Return cosines and numbers of the k most similar keys of a block."""
    count = len(queries)
    if count < _MIN_QUERIES:
        queries = F.pad(queries, (0, 0, 0, _MIN_QUERIES - count))
    padding = -len(keys) % _GROUP
    # One row per key: in this orientation the product is 5% faster on a CPU.
    similarity = queries.new_empty(len(keys) + padding, len(queries))
    similarity[len(keys) :] = -math.inf
    torch.mm(keys, queries.T, out=similarity[: len(keys)])
    similarity = similarity[:, :count]
    if itself is not None:
        place = torch.searchsorted(numbers, itself).clamp(max=len(keys) - 1)
        own = similarity.gather(0, place[None])
        similarity.scatter_(0, place[None], own.masked_fill(numbers[place] == itself, -math.inf))
    cosine, at = _top(similarity, min(k, len(keys)))
    # Where fewer than k keys remain, padding or the query itself may be among the top k; both have
    # similarity −∞ and lose against every key of another block.
    return cosine, numbers[at.clamp(max=len(keys) - 1)]


def _top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return (Q, k) values and indices of the top k of each column; its length: n·_GROUP."""
    groups = similarity.unflatten(0, (-1, _GROUP))
    if len(groups) <= k:
        similarity = similarity.T.contiguous()
        top = _first_highest(similarity, k)
        return similarity.gather(1, top), top
    # In ascending order, so that the first of equal similarities has the lowest index.
    best = _first_highest(groups.amax(dim=1).T.contiguous(), k).sort(dim=1).values
    candidates = groups.gather(0, best.T[:, None].expand(-1, _GROUP, -1))
    candidates = candidates.flatten(0, 1).T.contiguous()
    top = _first_highest(candidates, k)
    group = best.gather(1, top // _GROUP)
    return candidates.gather(1, top), group * _GROUP + top % _GROUP


def _first_highest(values: Tensor, k: int) -> Tensor:
    """Return (Q, k) indices of the k highest values of every row, in order, ties by index."""
    top = values.topk(min(k + 1, values.shape[1]), dim=1)
    places = top.indices[:, :k]
    # `topk` returns ties in any order: the few rows that have some are sorted.
    tied = (top.values[:, 1:] == top.values[:, :-1]).any(dim=1).nonzero()[:, 0]
    if len(tied):
        order = values[tied].sort(dim=1, descending=True, stable=True).indices
        places[tied] = order[:, :k]
    return places


def _unit(rows: Tensor, device: torch.device) -> Tensor:
    rows = rows.to(device, non_blocking=True)
    return F.normalize(rows.to(_wide(rows.dtype)), dim=1)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: features in half precision are compared in single."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
