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
    _check_labels(v, labels)
    anchors = F.normalize(v, dim=1)
    keys = anchors if key_gradient else anchors.detach()
    log_sum = _log_sum_over_others(anchors, keys, tau)

    class_sum = torch.zeros_like(keys).index_add(0, labels, keys)
    class_size = torch.zeros_like(labels).index_add(0, labels, torch.ones_like(labels))
    others = class_size[labels] - 1
    to_positives = (anchors * (class_sum[labels] - keys)).sum(dim=1) / tau

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


def _log_sum_over_others(anchors: Tensor, keys: Tensor, tau: float) -> Tensor:
    """(N,) log Σ_{k≠i} exp(anchor_i · key_k / τ)."""
    itself = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    return ((anchors @ keys.T) / tau).masked_fill(itself, -math.inf).logsumexp(dim=1)


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise ValueError(
            f"two views of the same N ≥ 2 images are needed, (N, D) each, "
            f"not {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _check_labels(v: Tensor, labels: Tensor) -> None:
    if v.ndim != 2 or len(v) < 2 or labels.shape != v.shape[:1]:
        raise ValueError(
            f"embeddings (N, D) with N ≥ 2 and labels (N,) are needed, "
            f"not {tuple(v.shape)} and {tuple(labels.shape)}"
        )
