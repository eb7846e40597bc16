"""Diagnostics of a representation: metrics that need no labels, and a few that use them.

All are pure functions of tensors, and none of them makes the host wait for the device.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

COLLAPSED = 0.5
"""Share of constant dimensions of the projection above which a run counts as collapsed."""


def rankme(features: Tensor) -> Tensor:
    """Compute RankMe (Garrido et al., 2023), exp of the entropy of the normalized singular values.

    Close to 1 if all (N, D) features lie on a line, close to min(N, D) if they use all directions.

    >>> round(float(rankme(torch.eye(8))), 3)
    8.0
    """
    values = torch.linalg.svdvals(features.float())
    p = values / values.sum().clamp(min=1e-12)
    return torch.exp(-(p * torch.log(p + 1e-7)).sum())


def alignment(z1: Tensor, z2: Tensor) -> Tensor:
    """Compute the mean squared distance of two views (Wang and Isola, 2020); 0 is best."""
    return (F.normalize(z1, dim=1) - F.normalize(z2, dim=1)).square().sum(dim=1).mean()


def uniformity(z: Tensor) -> Tensor:
    """Compute the log mean of exp(−2·distance²) over pairs on the sphere; 0 means collapse."""
    z = F.normalize(z, dim=1)
    others = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
    squared = (2 - 2 * (z @ z.T)).clamp(min=0)
    mean = (torch.exp(-2 * squared) * others).sum() / (len(z) * (len(z) - 1))
    return torch.log(mean)


def collapsed_share(z: Tensor) -> Tensor:
    """Compute the fraction of dimensions whose spread is below 5% of that of uniform unit rows."""
    spread = F.normalize(z, dim=1).std(dim=0) * math.sqrt(z.shape[1])
    return (spread < 0.05).float().mean()


def weak_label_sizes(labels: Tensor) -> dict[str, Tensor]:
    """Compute the number of components, and the fraction of the batch in the largest.

    Args:
        labels: (N,) weak labels, each the index of a member of its component.
    """
    sizes = torch.zeros_like(labels).index_add(0, labels, torch.ones_like(labels))
    return {
        "components": (sizes > 0).sum().float(),
        "largest_component": sizes.max() / len(labels),
    }


def weak_label_quality(labels: Tensor, classes: Tensor, class_count: int) -> dict[str, Tensor]:
    """Compare weak labels with the true classes.

    Args:
        labels: (N,) weak labels in [0, N).
        classes: (N,) true classes in [0, class_count).
        class_count: number of classes.

    Returns:
        purity: fraction of rows that belong to the most common class of their component;
        pair_precision: fraction of positive pairs that are of the same class;
        pair_recall: fraction of pairs of the same class that are positive;
        collision_rate: fraction of negative pairs that are of the same class.
    """
    count = len(labels)
    table = torch.zeros(count * class_count, device=labels.device)
    table.index_add_(0, labels * class_count + classes, torch.ones(count, device=labels.device))
    table = table.view(count, class_count)
    same_label = (table.sum(dim=1).square()).sum() - count
    same_class = (table.sum(dim=0).square()).sum() - count
    both = table.square().sum() - count
    negatives = count * (count - 1) - same_label
    return {
        "purity": table.amax(dim=1).sum() / count,
        "pair_precision": both / same_label.clamp(min=1),
        "pair_recall": both / same_class.clamp(min=1),
        "collision_rate": (same_class - both) / negatives.clamp(min=1),
    }


def pair_statistics(positives: Tensor, index: Tensor) -> dict[str, Tensor]:
    """Count the pairs that a batch of images chooses, without labels.

    Args:
        positives: (N, k) numbers of the images that each image takes as positives; −1 for none.
            Repeated ones count once, and the image itself does not count.
        index: (N,) numbers of the images of the batch, all different.

    Returns:
        positives: mean number of positives of an image;
        conflicting: fraction of the pairs (i, j) within the batch where i is not among the
            positives of j; NaN if there are no such pairs.
    """
    pairs = _distinct_pairs(positives, index)
    inside, position = _positions(pairs, index)
    mutual = (pairs[position] == index[:, None, None]).any(dim=2)
    return {
        "positives": (pairs >= 0).sum() / len(index),
        "conflicting": (inside & ~mutual).sum() / inside.sum(),
    }


def pair_quality(positives: Tensor, index: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """Compare the pairs that a batch of images chooses with the true classes.

    Args:
        positives, index: as for `pair_statistics`.
        classes: true classes of all images, also those outside the batch.

    Returns:
        pair_precision: fraction of the chosen pairs that are of the same class;
        pair_recall: fraction of the batch's pairs of the same class that are chosen.
        NaN if there are no pairs to count, and for the recall if a positive is not in the batch.
    """
    pairs = _distinct_pairs(positives, index)
    chosen, own = pairs >= 0, classes[index]
    correct = (chosen & (classes[pairs.clamp(min=0)] == own[:, None])).sum()
    inside, _ = _positions(pairs, index)
    ordered = own.sort().values
    sizes = torch.searchsorted(ordered, own, right=True) - torch.searchsorted(ordered, own)
    same_class = (sizes - 1).sum()
    return {
        "pair_precision": correct / chosen.sum(),
        "pair_recall": torch.where((inside == chosen).all(), correct / same_class, math.nan),
    }


def _distinct_pairs(positives: Tensor, index: Tensor) -> Tensor:
    """Return the positives of each image, where repeated ones and the image itself are −1."""
    pairs = torch.where(positives == index[:, None], -1, positives).sort(dim=1).values
    repeated = torch.zeros_like(pairs, dtype=torch.bool)
    repeated[:, 1:] = pairs[:, 1:] == pairs[:, :-1]
    return torch.where(repeated, -1, pairs)


def _positions(images: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether images are in the batch `index`, and where (anywhere if they are not)."""
    ordered, order = index.sort()
    place = torch.searchsorted(ordered, images).clamp(max=len(index) - 1)
    return ordered[place] == images, order[place]


def neighbor_quality(
    neighbors: Tensor, similarity: Tensor, before: Tensor | None = None
) -> dict[str, Tensor]:
    """Compute the mean similarity of the neighbors, and the fraction of them that is new.

    Args:
        neighbors: (n, k) numbers of the neighbors of n images.
        similarity: (n, k) their cosines.
        before: (n, K) the neighbors of the same images after the last search.
    """
    metrics = {"neighbor_similarity": similarity.mean()}
    if before is not None:
        known = (neighbors[:, :, None] == before[:, None, :]).any(dim=2)
        metrics["neighbors_changed"] = 1 - known.float().mean()
    return metrics


def same_class(neighbors: Tensor, rows: Tensor, classes: Tensor) -> Tensor:
    """Compute the fraction of neighbors (n, k) that share the class of their image in `rows`."""
    return (classes[neighbors] == classes[rows][:, None]).float().mean()
