"""Views of other images that are probably of the same class, and the contrastive loss with them.

The 2N views of a batch are numbered: view 1 of image i is i, view 2 is i + N.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.ops.tiled_losses import log_sum_over_all

# Rows of similarities held at a time, as in `weak_labels`.
_ROWS_AT_A_TIME = 512


@torch.no_grad()
def most_similar(
    queries: Tensor,
    views: Tensor,
    image: Tensor,
    k: int,
    threshold: float = -math.inf,
    aggregate: Literal["max", "mean"] = "max",
) -> Tensor:
    """Find the k views of other images with the largest cosine to an image's queries.

    Args:
        queries: (Q, n, D) embeddings by which n images, or views of them, are compared.
        views: (2N, D) embeddings of the batch.
        image: (n,) images, below N, that the queries are of.
        k: number of views to find.
        threshold: cosine that a view must exceed.
        aggregate: how the cosines to the Q queries are combined.

    Returns:
        (n, k) numbers of views, the most similar first; −1 where there are no more.
    """
    queries, keys = F.normalize(queries, dim=2), F.normalize(views, dim=1)
    if aggregate == "mean":
        queries = queries.mean(dim=0, keepdim=True)  # the mean of products with unit vectors
    own = torch.stack([image, image + len(views) // 2], dim=1)
    found = torch.full((len(image), k), -1, device=views.device)
    count = min(k, len(views))
    for start in range(0, len(image), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        similarity = queries[0, rows] @ keys.T
        for more in queries[1:, rows]:
            similarity = torch.maximum(similarity, more @ keys.T)
        similarity.scatter_(1, own[rows], -math.inf)
        values, number = similarity.topk(count, dim=1)
        found[rows, :count] = torch.where(values > threshold, number, -1)
    return found


def images_of(views: Tensor, index: Tensor) -> Tensor:
    """Return the dataset indices of the images that numbered views are of, and −1 for −1.

    Args:
        views: numbers of views, of any shape.
        index: (N,) dataset indices of the images of the batch.
    """
    return torch.where(views >= 0, index[views % len(index)], -1)


def contrast_with_similar(
    z1: Tensor,
    z2: Tensor,
    similar: Tensor,
    temperature: float,
    use: Literal["attract", "eliminate"] = "attract",
    own: Tensor | None = None,
) -> Tensor:
    """Compute NT-Xent where each anchor attracts similar views, or does not repel them.

    With F(i) the similar views of anchor i and i' the other view of its image:

        attract:   −1/(1+|F(i)|) Σ_{p ∈ {i'} ∪ F(i)} log exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)
        eliminate: −log exp(s_ii'/τ) / Σ_{k≠i, k∉F(i)} exp(s_ik/τ)

    Args:
        z1, z2: (N, D) embeddings of the two views.
        similar: (2n, k) F of the first views of the own images, then of the second ones: numbers
            of views of other images, all different; −1 for none.
        temperature: τ.
        use: what to do with the similar views.
        own: (n,) positions of the images whose views are the anchors; None for all.

    Returns:
        A scalar: the sum over the own anchors divided by 2N.
    """
    count = len(z1)
    views = F.normalize(torch.cat([z1, z2]), dim=1)
    if own is None:
        own = torch.arange(count, device=z1.device)
    itself, other = torch.cat([own, own + count]), torch.cat([own + count, own])
    anchors = views[itself] / temperature
    positive = (anchors * views[other]).sum(dim=1)
    excluded = itself[:, None]
    if use == "eliminate":
        excluded = torch.cat([excluded, similar], dim=1)
    else:
        chosen = similar >= 0
        products = (anchors[:, None] * views[similar.clamp(min=0)]).sum(dim=2)
        positive = (positive + (products * chosen).sum(dim=1)) / (1 + chosen.sum(dim=1))
    return (log_sum_over_all(anchors, views, excluded) - positive).sum() / (2 * count)
