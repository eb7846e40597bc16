"""K nearest neighbours of every image by cosine: exact search in bounded memory, on any device."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Similarities held at a time; 64 MB in float32.
_BLOCK = 2**24
# Keys whose similarities are reduced to their maximum before anything is sorted.
_GROUP = 64


def nearest(
    queries: Tensor, keys: Tensor, k: int, itself: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k most similar keys of every query, most similar first.

    Blockwise, so that memory stays bounded whatever the sizes. Within a block only the k groups of
    keys with the highest maxima can hold the k highest similarities, so only those are sorted: one
    cheap pass over the similarities takes the place of a partial sort of all of them.

    Args:
        queries: (Q, D) features.
        keys: (N, D) features.
        k: neighbours wanted, at most N (N − 1 with `itself`).
        itself: (Q,) for each query the key that it is, which is left out.

    Returns:
        (Q, k) cosines and (Q, k) indices into keys.
    """
    available = len(keys) - (itself is not None)
    if not 1 <= k <= available:
        raise ValueError(f"k = {k} neighbours of {available} candidates")
    keys = F.normalize(keys, dim=1)
    padding = -len(keys) % _GROUP
    rows = max(1, _BLOCK // (len(keys) + padding))
    values, indices = [], []
    for start in range(0, len(queries), rows):
        block = F.normalize(queries[start : start + rows], dim=1)
        similarity = block.new_full((len(block), len(keys) + padding), -math.inf)
        torch.mm(block, keys.T, out=similarity[:, : len(keys)])
        if itself is not None:
            similarity.scatter_(1, itself[start : start + rows, None], -math.inf)
        top, at = _top(similarity, k)
        values.append(top)
        indices.append(at)
    return torch.cat(values), torch.cat(indices)


def _top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Exact top k of every row, whose length is a multiple of the group's."""
    groups = similarity.unflatten(1, (-1, _GROUP))
    if groups.shape[1] <= k:
        top = similarity.topk(k, dim=1)
        return top.values, top.indices
    best = groups.amax(dim=2).topk(k, dim=1).indices
    candidates = groups.gather(1, best[:, :, None].expand(-1, -1, _GROUP)).flatten(1)
    top = candidates.topk(k, dim=1)
    group = best.gather(1, top.indices // _GROUP)
    return top.values, group * _GROUP + top.indices % _GROUP
