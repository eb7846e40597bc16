"""The groups of a run: images of a batch that share a weak label."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wcl.models.encoder import Encoder
from wcl.ops.diagnostics import weak_label_quality
from wcl.report.changed_neighbors import ChangedNeighbors, changed_neighbors
from wcl.report.images import EncodedImages, ReportImages
from wcl.report.pictures import (
    MAX_PICTURES,
    PictureRow,
    make_views,
    neighbor_rows,
    picture,
    random_rows,
    view_rows,
)
from wcl.report.runs import NO_METHOD, Run
from wcl.report.weak_labels import weak_labels_of

_MAX_BATCH = 512
_MAX_GROUPS = 3  # of one kind
_MIN_SIZE = 3  # of a group that can be called pure or mixed
_MAJORITY = 0.5  # a group is pure only if more than this share is of one class


@dataclass
class Group:
    """Images of a batch that share a weak label."""

    rows: list[int]
    classes: list[tuple[int, float]]
    """Each class and its share, the largest first; empty without labels."""

    @property
    def purity(self) -> float:
        return self.classes[0][1]

    @property
    def entropy(self) -> float:
        return -sum(share * math.log(share) for _, share in self.classes)


@dataclass
class BatchGroups:
    """The groups of one batch."""

    sizes: list[int]
    """How many images each group has, the largest first."""
    quality: Mapping[str, Tensor] | None
    """How well the groups agree with the classes; None without labels."""
    rows: dict[str, list[PictureRow]]
    """The groups that are shown, by heading."""


@dataclass
class RunGroups:
    """What one run considers similar, and its augmentations."""

    batch: BatchGroups | None
    """None if the run has no weak labels."""
    neighbors: list[PictureRow]
    views: list[PictureRow]
    adapting: ChangedNeighbors | None = None
    """What changed since the pretrained weights that the run started from, if it did."""


def run_groups(run: Run, images: ReportImages, encoded: EncodedImages) -> RunGroups:
    """Return the groups, neighbors and views of one run; a pretrained model has neighbors only."""
    neighbors = neighbor_rows(images, encoded.features, run.config)
    if run.config.method == NO_METHOD:
        return RunGroups(None, neighbors, [])
    return RunGroups(
        batch_groups(run, encoded.encoder, images),
        neighbors,
        view_rows(encoded.encoder, images, run.config),
        changed_neighbors(encoded, images),
    )


def batch_groups(run: Run, encoder: Encoder, images: ReportImages) -> BatchGroups | None:
    """Return the groups of one batch of augmented views, as in a training step."""
    config = run.config
    rows = random_rows(images, min(config.batch_size, _MAX_BATCH), config.seed)
    batch, _ = make_views(encoder, images, rows, config, count=1)
    rows = batch.index
    with torch.no_grad():
        views = batch.views[0][0].to(encoder.device)
        features = torch.cat([encoder.backbone(part).float().cpu() for part in views.split(256)])
    labels = weak_labels_of(run, encoder, features)
    if labels is None:
        return None
    classes = images.source.labels
    groups = [
        Group(own, [] if classes is None else shares(classes[own].tolist()))
        for own in (rows[group].tolist() for group in members(labels))
    ]
    quality = None
    if classes is not None:
        quality = weak_label_quality(labels, classes[rows], len(images.source.classes))
    sizes = [len(group.rows) for group in groups]
    return BatchGroups(sizes, quality, _group_rows(images, notable(groups)))


def members(labels: Tensor) -> list[list[int]]:
    """Return the rows of each weak label, the largest group first."""
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        groups.setdefault(label, []).append(row)
    return sorted(groups.values(), key=len, reverse=True)


def shares(classes: Sequence[int]) -> list[tuple[int, float]]:
    """Return each class and its share, the largest first.

    >>> shares([7, 3, 7, 1])
    [(7, 0.5), (1, 0.25), (3, 0.25)]
    """
    counts = sorted(Counter(classes).items(), key=lambda item: (-item[1], item[0]))
    return [(label, count / len(classes)) for label, count in counts]


def notable(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Choose the groups to show; a large one may also be pure or mixed.

    Args:
        groups: of a batch, the largest first.
    """
    chosen = {"Largest": [*groups[:_MAX_GROUPS]]}
    enough = [group for group in groups if group.classes and len(group.rows) >= _MIN_SIZE]
    # At most half of the groups, or the purest would also be the most mixed.
    count = min(_MAX_GROUPS, len(enough) // 2)
    by_purity = sorted(enough, key=lambda group: (-group.purity, -len(group.rows)))
    chosen["Purest"] = [group for group in by_purity[:count] if group.purity > _MAJORITY]
    mixed = [group for group in by_purity[count:] if group.purity < 1]
    chosen["Most mixed"] = sorted(mixed, key=lambda group: -group.entropy)[:count]
    return chosen


def _group_rows(
    images: ReportImages, chosen: dict[str, list[Group]]
) -> dict[str, list[PictureRow]]:
    """Return a row of pictures for each group, under the first of its headings."""
    rows: dict[str, list[PictureRow]] = {}
    done: list[Group] = []
    for heading, groups in chosen.items():
        new = [group for group in groups if group not in done]
        done += new
        rows[heading] = [
            PictureRow(
                [picture(images, row, images.alt(row)) for row in group.rows[:MAX_PICTURES]],
                _caption(group, images.source.classes),
                max(0, len(group.rows) - MAX_PICTURES),
            )
            for group in new
        ]
    return rows


def _caption(group: Group, classes: Sequence[str]) -> str:
    parts = [f"{len(group.rows)} images"]
    if group.classes:
        largest = ", ".join(f"{share:.0%} {classes[label]}" for label, share in group.classes[:3])
        more = len(group.classes) - 3
        parts.append(f"{largest} and {more} more" if more > 0 else largest)
    return " · ".join(parts)
