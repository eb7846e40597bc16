"""Exact search in bounded memory, on any device."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Similarities held at a time: 51 MB in float32, of several sizes the fastest on two cores. (Rows of
# a power of two would all begin at the same places of the cache: 142 instead of 152 GFLOPS.)
_KEYS_AT_A_TIME = 196 * 64
_QUERIES_AT_A_TIME = 2**10
# Keys whose similarities are reduced to their maximum before anything is sorted.
_GROUP = 16


def nearest(
    queries: Tensor,
    keys: Tensor,
    k: int,
    itself: Tensor | None = None,
    candidates: Tensor | None = None,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """The k most similar keys of every query, most similar first.

    Blockwise, so that memory beyond that of the queries stays bounded whatever the sizes; keys in
    half precision are widened a block at a time. Within a block only the k groups of keys with the
    highest maxima can hold the k highest similarities, so only those are sorted: one cheap pass
    over the similarities takes the place of a partial sort of all of them.

    Args:
        queries: (Q, D) features.
        keys: (N, D) features.
        k: neighbours wanted, at most as many as there are candidates besides the query itself.
        itself: (Q,) for each query the key that it is, which is left out.
        candidates: the keys that may be found, in rising order; None for all.
        device: where to compute; None for where the queries are.

    Returns:
        (Q, k) cosines and (Q, k) indices into keys, where the queries are.
    """
    count = len(keys) if candidates is None else len(candidates)
    available = count - (itself is not None)  # one less even if the query is no candidate
    if not 1 <= k <= available:
        raise ValueError(f"k = {k} neighbours of {available} candidates")
    device = device or queries.device
    best = torch.full((len(queries), k), -math.inf, dtype=_wide(queries.dtype), device=device)
    index = torch.zeros(len(queries), k, dtype=torch.long, device=device)
    unit = _unit(queries, device)
    for first in range(0, count, _KEYS_AT_A_TIME):
        last = min(first + _KEYS_AT_A_TIME, count)
        part = keys[first:last] if candidates is None else keys[candidates[first:last]]
        block = _unit(part, device)
        numbers = None if candidates is None else candidates[first:last].to(device)
        for start in range(0, len(queries), _QUERIES_AT_A_TIME):
            rows = slice(start, start + _QUERIES_AT_A_TIME)
            own = None if itself is None else itself[rows].to(device)
            cosine, at = _nearest_in_block(unit[rows], block, k, own, first, numbers)
            cosine, at = torch.cat([best[rows], cosine], dim=1), torch.cat([index[rows], at], dim=1)
            best[rows], order = cosine.topk(k, dim=1)
            index[rows] = at.gather(1, order)
    return best.to(queries.device), index.to(queries.device)


def _nearest_in_block(
    queries: Tensor, keys: Tensor, k: int, itself: Tensor | None, first: int, numbers: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Cosines and numbers of the k best of a block of keys, whose first has the number `first`."""
    padding = -len(keys) % _GROUP
    # A row per key: this way round the product is 5% faster on a CPU.
    similarity = queries.new_empty(len(keys) + padding, len(queries))
    similarity[len(keys) :] = -math.inf
    torch.mm(keys, queries.T, out=similarity[: len(keys)])
    if itself is not None:
        place = itself - first if numbers is None else torch.searchsorted(numbers, itself)
        inside = (place >= 0) & (place < len(keys))
        place = place.clamp(0, len(keys) - 1)
        if numbers is not None:
            inside &= numbers[place] == itself
        own = similarity.gather(0, place[None]).masked_fill(inside, -math.inf)
        similarity.scatter_(0, place[None], own)
    cosine, at = _top(similarity, min(k, len(keys)))
    # Where fewer than k are left, a padded row may stand for the query itself; both are −∞ and lose
    # against every other key.
    at = at.clamp(max=len(keys) - 1)
    return cosine, at + first if numbers is None else numbers[at]


def _top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(Q, k) exact top k of every column, whose length is a multiple of the group's."""
    groups = similarity.unflatten(0, (-1, _GROUP))
    if len(groups) <= k:
        top = similarity.T.contiguous().topk(k, dim=1)
        return top.values, top.indices
    best = groups.amax(dim=1).T.contiguous().topk(k, dim=1).indices
    candidates = groups.gather(0, best.T[:, None].expand(-1, _GROUP, -1))
    top = candidates.flatten(0, 1).T.contiguous().topk(k, dim=1)
    group = best.gather(1, top.indices // _GROUP)
    return top.values, group * _GROUP + top.indices % _GROUP


def _unit(rows: Tensor, device: torch.device) -> Tensor:
    rows = rows.to(device, non_blocking=True)
    return F.normalize(rows.to(_wide(rows.dtype)), dim=1)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Half precision is for storing; products of it are taken in single."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
