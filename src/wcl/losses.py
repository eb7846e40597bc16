"""The contrastive losses, as pure functions of embeddings.

Rows need not be normalised: every function takes the cosine, as the paper's `sim` does. All sums
are over the whole batch that is passed in.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def nt_xent(z1: Tensor, z2: Tensor, tau: float = 0.1) -> Tensor:
    """Instance discrimination L_NCE, Eq. 1, over the 2N views of N images.

    For each of the 2N anchors the positive is the other view of its image and the denominator runs
    over the 2N − 1 other views; the loss is the mean over the anchors.

    Args:
        z1, z2: (N, D) embeddings of the two views, row i of both from image i.
        tau: temperature.

    Returns:
        A scalar.

    >>> z = torch.eye(2)
    >>> bool(nt_xent(z, z) < nt_xent(z, z.flip(0)))
    True
    """
    _check_options(tau)
    _check_pair(z1, z2)
    count = len(z1)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    log_sum = _log_sum_over_others(z, z, tau)
    positive = (z[:count] * z[count:]).sum(dim=1) / tau
    return log_sum.mean() - positive.mean()


def supervised_contrastive(
    v: Tensor,
    labels: Tensor,
    tau: float = 0.1,
    positives: Literal["mean", "sum"] = "mean",
    key_gradient: bool = True,
) -> Tensor:
    """Supervised contrastive loss L_sup, Eq. 3–4: rows of equal label attract each other.

    For each anchor, −log softmax over all other rows, averaged (or summed, as the paper prints it)
    over its positives; then the mean over all anchors. An anchor without positives adds nothing.

    The positives' term needs no N×N mask: the similarities of row i to its whole class add up to
    its product with the class's sum.

    Args:
        v: (N, D) embeddings.
        labels: (N,) integers in [0, N), as `weak_labels` gives them.
        tau: temperature.
        positives: how an anchor's positives are combined.
        key_gradient: whether gradient flows through the keys as well as through the anchors.

    Returns:
        A scalar.
    """
    _check_options(tau, positives)
    _check_labels(v, labels)
    anchors = F.normalize(v, dim=1)
    keys = anchors if key_gradient else anchors.detach()
    log_sum = _log_sum_over_others(anchors, keys, tau)

    class_sum, class_size = _class_sums(keys, labels)
    others = class_size - 1
    to_positives = (anchors * (class_sum - keys)).sum(dim=1) / tau

    loss = others * log_sum - to_positives
    if positives == "mean":
        loss = loss / others.clamp(min=1)
    return loss.mean()


def swap(
    v1: Tensor,
    v2: Tensor,
    labels1: Tensor,
    labels2: Tensor,
    tau: float = 0.1,
    positives: Literal["mean", "sum"] = "mean",
    key_gradient: bool = True,
) -> Tensor:
    """The swapped loss L_swap, Eq. 7: each view is supervised by the other view's weak labels.

    A view's own labels would ask little of it, since rows of one component are close already.

    Args:
        v1, v2: (N, D) embeddings of the two views.
        labels1, labels2: (N,) weak labels found in v1 and in v2.
        tau, positives, key_gradient: as for `supervised_contrastive`.

    Returns:
        A scalar, the sum of the two terms.
    """
    _check_pair(v1, v2)
    return supervised_contrastive(
        v1, labels2, tau, positives, key_gradient
    ) + supervised_contrastive(v2, labels1, tau, positives, key_gradient)


def crop_nce(crops: Tensor, z1: Tensor, z2: Tensor, tau: float = 0.1) -> Tensor:
    """Instance discrimination of extra crops, L_cNCE: each finds its own image among all.

    For every crop the mean of two InfoNCE terms, against the rows of each full view; the positive
    is the row of the crop's own image, the denominator all N rows. The mean over crops and anchors.

    Args:
        crops: (K, N, D) embeddings of K crops of each image.
        z1, z2: (N, D) embeddings of the full views.
        tau: temperature.

    Returns:
        A scalar.
    """
    _check_options(tau)
    _check_crops(crops, z1, z2)
    anchors = F.normalize(crops, dim=2).flatten(0, 1)
    own = torch.arange(len(z1), device=z1.device).repeat(len(crops))
    terms = [F.cross_entropy(anchors @ F.normalize(z, dim=1).T / tau, own) for z in (z1, z2)]
    return (terms[0] + terms[1]) / 2


def crop_swap(
    crops: Tensor,
    v1: Tensor,
    v2: Tensor,
    labels1: Tensor,
    labels2: Tensor,
    tau: float = 0.1,
    positives: Literal["mean", "sum"] = "mean",
    key_gradient: bool = True,
) -> Tensor:
    """The swapped loss of extra crops, L_cswap: each is drawn to all images of its weak label.

    Crop anchors against the rows of view 1 with the labels of view 2, and the other way round. The
    anchor is not among the keys, so the row of its own image counts as a positive too.

    Args:
        crops: (K, N, D) embeddings of K crops of each image.
        v1, v2: (N, D) embeddings of the full views.
        labels1, labels2: (N,) weak labels found in v1 and in v2.
        tau, positives, key_gradient: as for `supervised_contrastive`.

    Returns:
        A scalar: the sum of the two terms, each the mean over crops and anchors.
    """
    _check_options(tau, positives)
    _check_crops(crops, v1, v2)
    anchors = F.normalize(crops, dim=2)
    total = anchors.new_zeros(())
    for v, labels in ((v1, labels2), (v2, labels1)):
        _check_labels(v, labels)
        keys = F.normalize(v if key_gradient else v.detach(), dim=1)
        class_sum, class_size = _class_sums(keys, labels)
        log_sum = (anchors @ keys.T / tau).logsumexp(dim=2)
        loss = class_size * log_sum - (anchors * class_sum).sum(dim=2) / tau
        total = total + (loss / class_size if positives == "mean" else loss).mean()
    return total


def _class_sums(keys: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) and (N,) for each row: the sum of the keys of its class, and their number."""
    sums = torch.zeros_like(keys).index_add(0, labels, keys)
    sizes = torch.zeros_like(labels).index_add(0, labels, torch.ones_like(labels))
    return sums[labels], sizes[labels]


def _log_sum_over_others(anchors: Tensor, keys: Tensor, tau: float) -> Tensor:
    """(N,) log Σ_{k≠i} exp(anchor_i · key_k / τ)."""
    itself = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    return ((anchors @ keys.T) / tau).masked_fill(itself, -math.inf).logsumexp(dim=1)


def _check_options(tau: float, positives: str = "mean") -> None:
    if not 0 < tau < math.inf:
        raise ValueError(f"tau must be above 0, not {tau}")
    if positives not in ("mean", "sum"):
        raise ValueError(f"positives must be mean or sum, not {positives}")


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError(
            f"two views of the same N ≥ 2 images are needed, (N, D) each, "
            f"not {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _check_crops(crops: Tensor, a: Tensor, b: Tensor) -> None:
    _check_pair(a, b)
    if crops.ndim != 3 or crops.shape[1:] != a.shape:
        raise ValueError(
            f"crops of the same images are needed, (K, N, D) with views (N, D), "
            f"not {tuple(crops.shape)} and {tuple(a.shape)}"
        )


def _check_labels(v: Tensor, labels: Tensor) -> None:
    if v.ndim != 2 or len(v) < 2 or labels.shape != v.shape[:1]:
        raise ValueError(
            f"embeddings (N, D) with N ≥ 2 and labels (N,) are needed, "
            f"not {tuple(v.shape)} and {tuple(labels.shape)}"
        )
