"""Figures of a representation that need no labels, of two augmented views of each image.

`examples/label_free_study.py` measures how well each of them predicts accuracy.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from wcl.ops.agreement import neighbor_agreement, rand_index, retrieval
from wcl.ops.diagnostics import alignment, rankme, uniformity, weak_label_sizes
from wcl.ops.spectrum import alpha_req, lidar
from wcl.ops.weak_labels import weak_labels

IMAGES = 1000
"""Images that the figures are measured on: retrieval among fewer is easier."""
_GROUPED = 256  # images whose weak labels are found at a time


class Figure(NamedTuple):
    """A label-free figure: how it is titled, and how to compute it from (2, N, D) features."""

    title: str
    compute: Callable[[Tensor], Tensor]


def group_stability(views: Tensor) -> Tensor:
    """Compute the adjusted Rand index of the weak labels of the two views, in batches of 256.

    Args:
        views: (2, N, D) features.
    """
    parts = zip(*(view.split(_GROUPED) for view in views), strict=True)
    found = [rand_index(weak_labels(a), weak_labels(b)) for a, b in parts if len(a) > 1]
    return torch.stack(found).mean()


def largest_group(views: Tensor) -> Tensor:
    """Compute the share of the largest group of weak labels in batches of 256 first views."""
    groups = [weak_labels(part) for part in views[0].split(_GROUPED) if len(part) > 1]
    return torch.stack([weak_label_sizes(each)["largest_component"] for each in groups]).mean()


FIGURES = {
    "retrieval_top1": Figure(
        "other view found (top-1)", lambda v: retrieval(v[0], v[1])["retrieval_top1"]
    ),
    "retrieval_mrr": Figure(
        "other view found (mean reciprocal rank)",
        lambda v: retrieval(v[0], v[1])["retrieval_mrr"],
    ),
    "neighbor_agreement": Figure(
        "neighbors shared by two views", lambda v: neighbor_agreement(v[0], v[1])
    ),
    "group_stability": Figure("groups shared by two views", group_stability),
    "largest_group": Figure("largest group", largest_group),
    "rankme": Figure("RankMe", lambda v: rankme(v[0])),
    "alpha_req": Figure("α-ReQ", lambda v: alpha_req(v[0])),
    "lidar": Figure("LiDAR", lidar),
    "alignment": Figure("alignment", lambda v: alignment(v[0], v[1])),
    "uniformity": Figure("uniformity", lambda v: uniformity(v[0])),
}


def label_free(views: Tensor, names: tuple[str, ...] = tuple(FIGURES)) -> dict[str, float]:
    """Compute figures of (2, N, D) features, all of them or those named."""
    return {name: float(FIGURES[name].compute(views)) for name in names}
