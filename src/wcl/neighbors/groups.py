"""Groups of rows linked by a high cosine similarity: exact, block by block, in bounded memory."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.ops.randomness import Integers
from wcl.system.progress import track

# Similarities held at a time: 16 MB in float32.
_ROWS_AT_A_TIME = 2**9
_COLUMNS_AT_A_TIME = 2**13
_MAX_LINKS = 2**20
# Equal images have a cosine of 1 only up to single-precision rounding.
_ROUNDING = 1e-6


@torch.no_grad()
def linked_groups(
    features: Tensor, threshold: float, device: torch.device | None = None
) -> tuple[Integers, Tensor]:
    """Find the connected components of the graph that links rows with a cosine ≥ the threshold.

    Every pair is compared, a block at a time. When there are many links, they are reduced to one
    per row, so that neither a million rows nor a thousand equal ones need a matrix.

    Args:
        features: (N, D) rows; they need not be normalized.
        threshold: a cosine.
        device: where to compute; None for the device of the features.

    Returns:
        (N,) component labels, and (N,) the cosine of each row and its most similar other row if
        it reaches the threshold, else −1; both on the host.
    """
    count, device = len(features), device or features.device
    links: list[Integers] = []
    pending = 0
    highest = torch.full((count,), -1.0)
    for start in track(range(0, count, _ROWS_AT_A_TIME), "comparing images"):
        rows = F.normalize(features[start : start + _ROWS_AT_A_TIME].to(device), dim=1)
        for first in range(start, count, _COLUMNS_AT_A_TIME):
            columns = features[first : first + _COLUMNS_AT_A_TIME].to(device)
            cosine = rows @ F.normalize(columns, dim=1).T
            i, j = (cosine >= threshold - _ROUNDING).nonzero(as_tuple=True)
            value, i, j = cosine[i, j].cpu(), i.cpu() + start, j.cpu() + first
            once = i < j  # each pair once, and no row with itself
            value, i, j = value[once], i[once], j[once]
            for end in (i, j):
                highest.scatter_reduce_(0, end, value, "amax")
            links.append(torch.stack([i, j]).numpy())
            pending += len(i)
            if pending > max(_MAX_LINKS, 2 * count):
                labels = _components(links, count)
                first_rows = np.unique(labels, return_index=True)[1]
                links = [np.stack([np.arange(count), first_rows[labels]])]  # same groups
                pending = count
    return _components(links, count), highest.clamp(max=1)


def _components(links: list[Integers], count: int) -> Integers:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.concatenate([np.empty((2, 0), dtype=np.int64), *links], axis=1)
    graph = coo_array((np.ones(ends.shape[1], dtype=bool), (ends[0], ends[1])), (count, count))
    labels: Integers = connected_components(graph, directed=False)[1].astype(np.int64)
    return labels
