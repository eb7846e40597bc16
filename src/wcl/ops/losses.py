"""Contrastive losses, as pure functions of embeddings.

Rows need not be normalized: every function takes the cosine, as the paper's `sim` does. All sums
are over the whole batch that is passed in. The matrix of all pairs is never held in memory (see
`tiled_losses`), so memory grows linearly with the batch; gradients cannot be differentiated again.

When a batch is sharded, each process holds the embeddings of the whole batch but computes the loss
of its own images only: `own` holds their positions, in any order. The result is the sum over the
own anchors divided by the number of all anchors, so that the results of all processes add up to the
loss of the batch.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.ops.tiled_losses import log_sum_over_all, log_sum_over_others


def nt_xent(z1: Tensor, z2: Tensor, temperature: float = 0.1, own: Tensor | None = None) -> Tensor:
    """Compute the instance discrimination loss L_NCE, Eq. 1, over the 2N views of N images.

    For each of the 2N anchors, the positive is the other view of its image and the denominator runs
    over the 2N − 1 other views; the loss is the mean over the anchors.

    Args:
        z1, z2: (N, D) embeddings of the two views, row i of both from image i.
        temperature: τ.
        own: (n,) positions of the images whose views are the anchors; None for all.

    Returns:
        A scalar.

    >>> z = torch.eye(2)
    >>> bool(nt_xent(z, z) < nt_xent(z, z.flip(0)))
    True
    """
    _check_options(temperature)
    _check_pair(z1, z2)
    _check_own(own)
    count = len(z1)
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    own_views = None if own is None else torch.cat([own, own + count])
    log_sum = _log_sum_over_others(torch.cat([z1, z2]), temperature, own_views)
    positive = (_rows(z1, own) * _rows(z2, own)).sum(dim=1) / temperature
    return (log_sum.sum() - 2 * positive.sum()) / (2 * count)


def supervised_contrastive(
    v: Tensor,
    labels: Tensor,
    temperature: float = 0.1,
    positives: Literal["mean", "sum"] = "mean",
    key_gradient: bool = True,
    own: Tensor | None = None,
) -> Tensor:
    """Compute the supervised contrastive loss L_sup, Eq. 3–4: rows of equal label attract.

    For each anchor, −log softmax over all other rows, averaged (or summed, as printed in the paper)
    over its positives; then the mean over all anchors. An anchor without positives adds nothing.

    The term of the positives needs no N×N mask: the similarities of row i to its whole class add up
    to its product with the sum of the class.

    Args:
        v: (N, D) embeddings.
        labels: (N,) integers in [0, N), as `weak_labels` returns them.
        temperature: τ.
        positives: how the positives of an anchor are combined.
        key_gradient: whether gradient flows through the keys as well as through the anchors.
        own: (n,) positions of the rows that are anchors; None for all.

    Returns:
        A scalar.
    """
    _check_options(temperature, positives)
    _check_labels(v, labels)
    _check_own(own)
    rows = F.normalize(v, dim=1)
    keys = rows if key_gradient else rows.detach()
    log_sum = _log_sum_over_others(rows, temperature, own, key_gradient)

    class_sum, class_size = _class_sums(keys, labels, own)
    others = class_size - 1
    to_positives = (_rows(rows, own) * (class_sum - _rows(keys, own))).sum(dim=1) / temperature

    loss = others * log_sum - to_positives
    if positives == "mean":
        loss = loss / others.clamp(min=1)
    return loss.sum() / len(v)


def swap(
    v1: Tensor,
    v2: Tensor,
    labels1: Tensor,
    labels2: Tensor,
    temperature: float = 0.1,
    positives: Literal["mean", "sum"] = "mean",
    key_gradient: bool = True,
    own: Tensor | None = None,
) -> Tensor:
    """Compute the swapped loss L_swap, Eq. 7: each view is supervised by the other's weak labels.

    A view could learn little from its own labels: rows of one component are already close.

    Args:
        v1, v2: (N, D) embeddings of the two views.
        labels1, labels2: (N,) weak labels found in v1 and in v2.
        temperature, positives, key_gradient, own: as for `supervised_contrastive`.

    Returns:
        A scalar, the sum of the two terms.
    """
    _check_pair(v1, v2)
    return supervised_contrastive(
        v1, labels2, temperature, positives, key_gradient, own
    ) + supervised_contrastive(v2, labels1, temperature, positives, key_gradient, own)


def crop_nce(
    crops: Tensor, z1: Tensor, z2: Tensor, temperature: float = 0.1, own: Tensor | None = None
) -> Tensor:
    """Compute the instance discrimination loss of extra crops, L_cNCE.

    For every crop the mean of two InfoNCE terms, one for each full view: the positive is the row of
    the crop's own image, the denominator runs over all N rows. The mean over crops and anchors.

    Args:
        crops: (K, n, D) embeddings of K crops of each image of `own`.
        z1, z2: (N, D) embeddings of the full views.
        temperature: τ.
        own: (n,) positions of the cropped images among the views; None for all.

    Returns:
        A scalar.
    """
    _check_options(temperature)
    _check_crops(crops, z1, z2, own)
    anchors = F.normalize(crops, dim=2)
    total = anchors.new_zeros(())
    for z in (z1, z2):
        keys = F.normalize(z, dim=1)
        positive = (anchors * _rows(keys, own)).sum(dim=2) / temperature
        total = total + (_log_sum_of_crops(anchors, keys, temperature) - positive).sum()
    return total / (2 * len(crops) * len(z1))


def crop_swap(
    crops: Tensor,
    v1: Tensor,
    v2: Tensor,
    labels1: Tensor,
    labels2: Tensor,
    temperature: float = 0.1,
    positives: Literal["mean", "sum"] = "mean",
    key_gradient: bool = True,
    own: Tensor | None = None,
) -> Tensor:
    """Compute the swapped loss of extra crops, L_cswap: each is drawn to the images of its label.

    Crop anchors against the rows of view 1 with the labels of view 2, and vice versa. The anchor is
    not among the keys, so the row of its own image counts as a positive, too.

    Args:
        crops: (K, n, D) embeddings of K crops of each image of `own`.
        v1, v2: (N, D) embeddings of the full views.
        labels1, labels2: (N,) weak labels found in v1 and in v2.
        temperature, positives, key_gradient: as for `supervised_contrastive`.
        own: as for `crop_nce`.

    Returns:
        A scalar: the sum of the two terms, each the mean over crops and anchors.
    """
    _check_options(temperature, positives)
    _check_crops(crops, v1, v2, own)
    anchors = F.normalize(crops, dim=2)
    total = anchors.new_zeros(())
    for v, labels in ((v1, labels2), (v2, labels1)):
        _check_labels(v, labels)
        keys = F.normalize(v if key_gradient else v.detach(), dim=1)
        class_sum, class_size = _class_sums(keys, labels, own)
        log_sum = _log_sum_of_crops(anchors, keys, temperature)
        loss = class_size * log_sum - (anchors * class_sum).sum(dim=2) / temperature
        total = total + (loss / class_size if positives == "mean" else loss).sum()
    return total / (len(crops) * len(v1))


def _rows(rows: Tensor, own: Tensor | None) -> Tensor:
    return rows if own is None else rows[own]


def _class_sums(keys: Tensor, labels: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (n, D) the sum of the keys of each own row's class, and (n,) their number."""
    sums = torch.zeros_like(keys).index_add(0, labels, keys)
    sizes = torch.zeros_like(labels).index_add(0, labels, torch.ones_like(labels))
    wanted = _rows(labels, own)
    return sums[wanted], sizes[wanted]


def _log_sum_over_others(
    rows: Tensor, temperature: float, own: Tensor | None, key_gradient: bool = True
) -> Tensor:
    """Return (n,) log Σ_{k≠i} exp(row_i · row_k / τ) for each own row i; rows are unit vectors."""
    if own is None and key_gradient:
        return log_sum_over_others(rows / math.sqrt(temperature), bound=1 / temperature)
    itself = torch.arange(len(rows), device=rows.device) if own is None else own
    keys = rows if key_gradient else rows.detach()
    return log_sum_over_all(_rows(rows, own) / temperature, keys, itself)


def _log_sum_of_crops(anchors: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Return (K, n) log Σ_k exp(crop · key_k / τ) for each crop."""
    log_sum = log_sum_over_all(anchors.flatten(0, 1) / temperature, keys)
    return log_sum.view(anchors.shape[:2])


def _check_options(temperature: float, positives: str = "mean") -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0, not {temperature}")
    if positives not in ("mean", "sum"):
        raise ValueError(f"positives must be mean or sum, not {positives}")


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError(
            f"two views of the same N ≥ 2 images are needed, (N, D) each, "
            f"not {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _check_crops(crops: Tensor, a: Tensor, b: Tensor, own: Tensor | None) -> None:
    _check_pair(a, b)
    _check_own(own)
    images = len(a) if own is None else len(own)
    if crops.ndim != 3 or crops.shape[1:] != (images, a.shape[1]):
        raise ValueError(
            f"crops of the same images are needed, (K, {images}, D) with views (N, D), "
            f"not {tuple(crops.shape)} and {tuple(a.shape)}"
        )


def _check_own(own: Tensor | None) -> None:
    # The device checks that they are in range: checking here would make the host wait for it.
    if own is not None and (own.ndim != 1 or own.dtype != torch.long):
        raise ValueError(
            f"own must be positions (n,) in int64, not {tuple(own.shape)} in {own.dtype}"
        )


def _check_labels(v: Tensor, labels: Tensor) -> None:
    if v.ndim != 2 or len(v) < 2 or labels.shape != v.shape[:1]:
        raise ValueError(
            f"embeddings (N, D) with N ≥ 2 and labels (N,) are needed, "
            f"not {tuple(v.shape)} and {tuple(labels.shape)}"
        )
