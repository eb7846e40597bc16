"""Exact search in bounded memory, on any device."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

# Similarities held at a time: 51 MB in float32, of several sizes the fastest on two cores. (Rows of
# a power of two would all begin at the same places of the cache: 142 instead of 152 GFLOPS.)
_KEYS_AT_A_TIME = 196 * 64
_QUERIES_AT_A_TIME = 2**10
# Keys whose similarities are reduced to their maximum before anything is sorted.
_GROUP = 16
# Fewer queries than this are multiplied in another way (MKL), which rounds differently: zeros fill
# them up, so that the neighbors of a query do not depend on how many others are asked about.
_LEAST_QUERIES = 16


def nearest(
    queries: Tensor,
    keys: Tensor,
    k: int,
    itself: Tensor | None = None,
    candidates: Tensor | None = None,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """The k most similar keys of every query, most similar first, of equal ones the lower number.

    Blockwise, so that memory beyond that of the queries stays bounded whatever the sizes; keys in
    half precision are widened a block at a time. Within a block only the k groups of keys with the
    highest maxima can hold the k highest similarities, so only those are sorted: one cheap pass
    over the similarities takes the place of a partial sort of all of them.

    Args:
        queries: (Q, D) features.
        keys: (N, D) features.
        k: neighbors wanted, at most as many as there are candidates besides the query itself.
        itself: (Q,) for each query the key that it is, which is left out.
        candidates: the keys that may be found, in rising order; None for all.
        device: where to compute; None for where the queries are.

    Returns:
        (Q, k) cosines and (Q, k) indices into keys, where the queries are.
    """
    every = torch.arange(len(keys), device=keys.device) if candidates is None else candidates
    available = len(every) - (itself is not None)  # one less even if the query is no candidate
    if not 1 <= k <= available:
        raise ValueError(f"k = {k} neighbors of {available} candidates")
    parts = in_blocks(every)
    some = (keys[numbers] for numbers in parts)
    blocks = zip(parts, keys.split(len(parts[0])) if candidates is None else some, strict=True)
    return nearest_in_blocks(queries, blocks, k, itself, device=device)


def in_blocks(candidates: Tensor) -> tuple[Tensor, ...]:
    """The candidates, split into blocks that are compared with the queries at a time."""
    return torch.split(candidates, _KEYS_AT_A_TIME)


def nearest_in_blocks(
    queries: Tensor,
    blocks: Iterable[tuple[Tensor, Tensor]],
    k: int,
    itself: Tensor | None = None,
    asking: Tensor | None = None,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """`nearest` among keys that come block by block and need never be in one place.

    Args:
        queries: (Q, D) features.
        blocks: (n,) numbers of keys, rising from the first block to the last, and their (n, D)
            features; of both together at least k besides the query itself.
        k: neighbors wanted.
        itself: for each query the number of the key that it is, which is left out.
        asking: the rows of `queries` that ask; None for all.
        device: where to compute; None for where the queries are.
    """
    device = device or queries.device
    count = len(queries) if asking is None else len(asking)
    best = torch.full((count, k), -math.inf, dtype=_wide(queries.dtype), device=device)
    index = torch.zeros(count, k, dtype=torch.long, device=device)
    for numbers, keys in blocks:
        numbers, block = numbers.to(device), _unit(keys, device)
        for start in range(0, count, _QUERIES_AT_A_TIME):
            rows = slice(start, start + _QUERIES_AT_A_TIME)
            unit = _unit(queries[rows] if asking is None else queries[asking[rows]], device)
            own = None if itself is None else itself[rows].to(device)
            cosine, at = _nearest_in_block(unit, block, k, own, numbers)
            # The earlier ones first: they have the lower numbers.
            cosine, at = torch.cat([best[rows], cosine], dim=1), torch.cat([index[rows], at], dim=1)
            order = _first_highest(cosine, k)
            best[rows], index[rows] = cosine.gather(1, order), at.gather(1, order)
    return best.to(queries.device), index.to(queries.device)


def _nearest_in_block(
    queries: Tensor, keys: Tensor, k: int, itself: Tensor | None, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Cosines and numbers of the k best of a block of keys."""
    count = len(queries)
    if count < _LEAST_QUERIES:
        queries = F.pad(queries, (0, 0, 0, _LEAST_QUERIES - count))
    padding = -len(keys) % _GROUP
    # A row per key: this way round the product is 5% faster on a CPU.
    similarity = queries.new_empty(len(keys) + padding, len(queries))
    similarity[len(keys) :] = -math.inf
    torch.mm(keys, queries.T, out=similarity[: len(keys)])
    similarity = similarity[:, :count]
    if itself is not None:
        place = torch.searchsorted(numbers, itself).clamp(max=len(keys) - 1)
        own = similarity.gather(0, place[None])
        similarity.scatter_(0, place[None], own.masked_fill(numbers[place] == itself, -math.inf))
    cosine, at = _top(similarity, min(k, len(keys)))
    # Where fewer than k are left, a padded row may stand for the query itself; both are −∞ and lose
    # against every other key.
    return cosine, numbers[at.clamp(max=len(keys) - 1)]


def _top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, k) exact top k of every column, whose length is a multiple of the group's."""
    groups = similarity.unflatten(0, (-1, _GROUP))
    if len(groups) <= k:
        similarity = similarity.T.contiguous()
        top = _first_highest(similarity, k)
        return similarity.gather(1, top), top
    # In rising order, so that of equal similarities the first is the one with the lowest number.
    best = _first_highest(groups.amax(dim=1).T.contiguous(), k).sort(dim=1).values
    candidates = groups.gather(0, best.T[:, None].expand(-1, _GROUP, -1))
    candidates = candidates.flatten(0, 1).T.contiguous()
    top = _first_highest(candidates, k)
    group = best.gather(1, top // _GROUP)
    return candidates.gather(1, top), group * _GROUP + top % _GROUP


def _first_highest(values: Tensor, k: int) -> Tensor:
    """(Q, k) the places of the k highest of every row, in their order, of equal ones the first."""
    top = values.topk(min(k + 1, values.shape[1]), dim=1)
    places = top.indices[:, :k]
    # `topk` takes any of equal ones: the few rows that have some are sorted.
    tied = (top.values[:, 1:] == top.values[:, :-1]).any(dim=1).nonzero()[:, 0]
    if len(tied):
        order = values[tied].sort(dim=1, descending=True, stable=True).indices
        places[tied] = order[:, :k]
    return places


def _unit(rows: Tensor, device: torch.device) -> Tensor:
    rows = rows.to(device, non_blocking=True)
    return F.normalize(rows.to(_wide(rows.dtype)), dim=1)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Half precision is for storing; products of it are taken in single."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
