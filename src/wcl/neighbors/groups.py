"""Groups of rows: those that links connect, and a hierarchy by nearest neighbors."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.neighbors.exact import nearest
from wcl.ops.randomness import Integers
from wcl.ops.weak_labels import components

_SILHOUETTE_SAMPLE = 2000


def linked_groups(links: Tensor, count: int) -> list[list[int]]:
    """Return the connected components of `count` rows that have at least two members.

    Args:
        links: (L, 2) pairs of rows.
        count: number of rows.

    >>> linked_groups(torch.tensor([[0, 3], [3, 4]]), 5)
    [[0, 3, 4]]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = links.T.numpy()
    graph = coo_array((np.ones(len(links), dtype=bool), (ends[0], ends[1])), (count, count))
    labels = connected_components(graph, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(labels))[:-1])
    return [part.tolist() for part in parts if len(part) > 1]


@torch.no_grad()
def hierarchy(features: Tensor, device: torch.device | None = None) -> list[Tensor]:
    """Group rows by nearest neighbors, then the groups by their centers, and so on (FINCH).

    Every level is the connected components of the 1-nearest-neighbor graph, as for the weak labels
    of a batch; see Sarfraz et al., Efficient Parameter-Free Clustering Using First Neighbor
    Relations, 2019.

    Args:
        features: (N, D) rows; they need not be normalized.
        device: where to compute; None for the device of the features.

    Returns:
        (N,) labels from 0 for each level, the finest first, of at least two groups each.
    """
    labels, points = torch.arange(len(features)), features
    levels: list[Tensor] = []
    while len(points) > 2:
        itself = torch.arange(len(points), device=points.device)
        neighbors = nearest(points, points, 1, itself, device)[1][:, 0].cpu()
        merged = components(neighbors).unique(return_inverse=True)[1]
        if int(merged.max()) == 0:
            break
        labels = merged[labels]
        levels.append(labels)
        points = centers(features, labels)
    return levels


def centers(features: Tensor, labels: Tensor) -> Tensor:
    """Return (groups, D) the directions of the means of each group's unit vectors."""
    sums = features.new_zeros(int(labels.max()) + 1, features.shape[1])
    return F.normalize(sums.index_add(0, labels, F.normalize(features, dim=1)), dim=1)


def merged(features: Tensor, level: Tensor, groups: int) -> Tensor:
    """Merge the groups of a level until `groups` remain, by average linkage of their centers."""
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(centers(features, level).numpy(), "average")
    numbers: Integers = fcluster(tree, groups, "maxclust").astype(np.int64)
    return torch.from_numpy(numbers - 1)[level]


def silhouette(features: Tensor, labels: Tensor) -> float:
    """Return the mean silhouette by cosine, of a sample if there are many rows."""
    from sklearn.metrics import silhouette_score

    rows = np.random.default_rng(0).permutation(len(features))[:_SILHOUETTE_SAMPLE]
    chosen = labels[rows].numpy()
    if not 1 < len(np.unique(chosen)) < len(chosen):
        return -1.0
    return float(silhouette_score(features[rows].numpy(), chosen, metric="cosine"))
