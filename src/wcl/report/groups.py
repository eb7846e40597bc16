"""What did it group? Weak labels of a batch, neighbors and augmentations, as rows of pictures."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from wcl.config import PretrainConfig
from wcl.data import with_channels
from wcl.data.loader import Batch, views_of
from wcl.data.views import ViewSpec
from wcl.methods import build_method
from wcl.models.encoder import Encoder
from wcl.models.multiview import view_specs
from wcl.neighbors import nearest
from wcl.ops.diagnostics import weak_label_quality
from wcl.ops.randomness import Integers
from wcl.ops.weak_labels import weak_labels
from wcl.report.images import EncodedImages, ReportImages, embedding, members, shares
from wcl.report.sprites import picture
from wcl.system.errors import RunError

_LARGEST_BATCH = 512
_ROWS = 3
_ACROSS = 12
_FEWEST = 3  # images of a group that can be called pure or mixed
_MAJORITY = 0.5  # of one class, or it is not pure even beside others that are less so
_ANCHORS = 6
_NEIGHBORS = 8
_AUGMENTED = 4
_VIEWS = 6


class Picture(NamedTuple):
    """A small picture, what it shows, its kind (a class of the style sheet), and a caption."""

    uri: str
    alt: str
    kind: str = ""
    caption: str = ""


@dataclass
class PictureRow:
    """Pictures side by side, and how many more there are."""

    pictures: list[Picture]
    caption: str = ""
    more: int = 0


@dataclass
class RunGroups:
    """What one run grouped, and its augmentations."""

    summary: str
    groups: dict[str, list[PictureRow]]
    """The groups of one batch under the headings that they are shown under."""
    labeled: bool
    neighbors: list[PictureRow]
    """Some images, each with its nearest neighbors."""
    views: list[PictureRow]
    """Some images, each with augmented views; empty if they are those of another run."""
    same_views_as: str = ""
    """The name of that run."""

    def has_neighbors(self, kind: str) -> bool:
        return any(picture.kind == kind for row in self.neighbors for picture in row.pictures)


@dataclass
class Group:
    """A component of a batch."""

    rows: list[int]
    classes: list[tuple[int, float]]
    """Each class in it and its share, the commonest first; empty without labels."""

    @property
    def purity(self) -> float:
        return self.classes[0][1]

    @property
    def mixture(self) -> float:
        """The entropy of its classes."""
        return -sum(share * math.log(share) for _, share in self.classes)


def run_groups(
    encoder: Encoder,
    images: ReportImages,
    encoded: EncodedImages,
    config: PretrainConfig,
    same_views_as: str = "",
) -> RunGroups:
    """Return the groups of one run; views only if no other run has the same."""
    summary, groups = _batch_groups(encoder, images, config)
    return RunGroups(
        summary,
        groups,
        images.source.labels is not None,
        _neighbors(images, encoded, config),
        [] if same_views_as else _augmented(encoder, images, config),
        same_views_as,
    )


def _batch_groups(
    encoder: Encoder, images: ReportImages, config: PretrainConfig
) -> tuple[str, dict[str, list[PictureRow]]]:
    """Return the groups of one batch of augmented views, as in a step of training."""
    rows = _some(len(images), min(config.batch_size, _LARGEST_BATCH), config.seed)
    batch, _ = _views(images, rows, encoder, config, 1)
    rows = batch.index
    if len(rows) < 2:
        raise RunError("there are too few images for a batch")
    with torch.no_grad():
        first = batch.views[0].to(encoder.device)
        values = torch.cat([encoder.backbone(part).float().cpu() for part in first.split(256)])
    labels = weak_labels(embedding(encoder, values, config.loss))
    groups = [_group(images, rows[group].tolist()) for group in members(labels)]
    summary = f"{len(rows)} images fell into {len(groups)} groups; the largest has "
    summary += f"{len(groups[0].rows)} of them."
    classes = images.source.labels
    if classes is not None:
        quality = weak_label_quality(labels, classes[rows], len(images.source.classes))
        summary += f" {float(quality['purity']):.0%} of the images are of their group's main class"
        summary += f", and {float(quality['collision_rate']):.0%} of the pairs that are pushed"
        summary += " apart are really of one class."
    if not build_method(config.method, config.loss, config.crops.count > 0).learns_from_groups:
        summary += " (This run does not learn from groups; these are the ones its embeddings give.)"
    return summary, _group_rows(images, notable(groups))


def notable(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups to show, by what they are; one of the largest may be something else besides.

    Args:
        groups: of a batch, the largest first.
    """
    chosen = {"largest": [*groups[:_ROWS]]}
    enough = [group for group in groups if group.classes and len(group.rows) >= _FEWEST]
    # Of a few groups the purest would be the most mixed as well.
    count = min(_ROWS, len(enough) // 2)
    by_purity = sorted(enough, key=lambda group: (-group.purity, -len(group.rows)))
    chosen["purest"] = [group for group in by_purity[:count] if group.purity > _MAJORITY]
    mixed = [group for group in by_purity[count:] if group.purity < 1]
    chosen["most mixed"] = sorted(mixed, key=lambda group: -group.mixture)[:count]
    return chosen


def _neighbors(
    images: ReportImages, encoded: EncodedImages, config: PretrainConfig
) -> list[PictureRow]:
    """Return some images, each with the nearest others by the cosine of their features."""
    crops = config.crops
    count = min(crops.count if crops.count and crops.neighbors else _NEIGHBORS, _ACROSS)
    count = min(count, len(images) - 1)
    rows = torch.from_numpy(_some(len(images), _ANCHORS, config.seed))
    cosines, neighbors = nearest(encoded.features[rows], encoded.features, count, rows)
    found = []
    for row, values, others in zip(
        rows.tolist(), cosines.tolist(), neighbors.tolist(), strict=True
    ):
        label = images.label(row)
        pictures = [_picture(images, row, f"image: {images.alt(row)}", "lead", label)]
        for value, other in zip(values, others, strict=True):
            kind = ("same" if label == images.label(other) else "other") if label else ""
            alt = f"cosine {value:.2f}: {images.alt(other)}"
            pictures.append(_picture(images, other, alt, kind, f"{value:.2f}"))
        found.append(PictureRow(pictures))
    return found


def _augmented(encoder: Encoder, images: ReportImages, config: PretrainConfig) -> list[PictureRow]:
    """Return some images, each with augmented views of it."""
    rows = _some(len(images), _AUGMENTED, config.seed + 1)
    batch, specs = _views(images, rows, encoder, config, _VIEWS)
    pixels = [
        spec.maker.to_pixels(views).unflatten(0, (spec.count, -1))
        for spec, views in zip(specs, batch.views, strict=True)
    ]
    found = []
    for number, row in enumerate(batch.index.tolist()):
        caption = images.label(row) or "image"
        pictures = [_picture(images, row, f"image: {images.alt(row)}", "lead", caption)]
        for kind, views in enumerate(pixels):
            what = "small crop" if kind else "view"
            pictures += [
                Picture(
                    picture(view, images.side),
                    f"{what} {count} of {images.name(row)}",
                    "crop" if kind else "",
                )
                for count, view in enumerate(views[:, number], 1)
            ]
        found.append(PictureRow(pictures))
    return found


def _views(
    images: ReportImages, rows: Integers, encoder: Encoder, config: PretrainConfig, count: int
) -> tuple[Batch, list[ViewSpec]]:
    """Return views of the images that can be read, and their specifications.

    Small crops are left out if only one view is wanted.
    """
    source = with_channels(images.source, encoder.description.channels)
    full, *small = view_specs(config, source.channels)
    specs = [dataclasses.replace(full, count=count), *(small if count > 1 else [])]
    return views_of(source, rows, specs, config.seed), specs


def _some(count: int, most: int, seed: int) -> Integers:
    return np.random.default_rng(seed).permutation(count)[:most].astype(np.int64)


def _group(images: ReportImages, rows: list[int]) -> Group:
    labels = images.source.labels
    return Group(rows, [] if labels is None else shares(labels[rows].tolist()))


def _group_rows(
    images: ReportImages, chosen: dict[str, list[Group]]
) -> dict[str, list[PictureRow]]:
    """Return each group once, under the first heading that applies; captions name the others."""
    found: dict[str, list[PictureRow]] = {}
    done: list[Group] = []
    for heading, groups in chosen.items():
        new = [group for group in groups if group not in done]
        done += new
        found[heading.capitalize()] = [
            _group_row(
                images,
                group,
                [
                    f"the {other}" if len(chosen[other]) == 1 else f"one of the {other}"
                    for other in chosen
                    if other != heading and group in chosen[other]
                ],
            )
            for group in new
        ]
    return found


def _group_row(images: ReportImages, group: Group, also: Sequence[str]) -> PictureRow:
    caption = f"{len(group.rows)} images"
    if group.classes:
        names = [
            f"{share:.0%} {images.source.classes[label]}" for label, share in group.classes[:3]
        ]
        caption += f" · {', '.join(names)}"
        if len(group.classes) > len(names):
            caption += f" and {len(group.classes) - len(names)} more"
    caption += "".join(f" · also {what}" for what in also)
    pictures = [_picture(images, row, images.alt(row)) for row in group.rows[:_ACROSS]]
    return PictureRow(pictures, caption, max(0, len(group.rows) - _ACROSS))


def _picture(
    images: ReportImages, row: int, alt: str, kind: str = "", caption: str = ""
) -> Picture:
    return Picture(picture(images.tiles[row], images.side), alt, kind, caption)
