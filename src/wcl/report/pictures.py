"""Rows of pictures: images with their nearest neighbors, and with their augmented views."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.data import with_format
from wcl.data.loader import Batch, views_of
from wcl.data.views import ViewSpec
from wcl.models.encoder import Encoder
from wcl.neighbors import nearest
from wcl.ops.randomness import Integers
from wcl.report.images import ReportImages
from wcl.report.thumbnails import data_uri
from wcl.training.views import view_specs

MAX_PICTURES = 12
"""In one row."""
_NEIGHBOR_ROWS, _NEIGHBORS = 6, 8
_VIEW_ROWS, _VIEWS = 4, 6


class Picture(NamedTuple):
    """A picture with its alternative text and caption; `kind` is its class in the style sheet."""

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


def picture(images: ReportImages, row: int, alt: str, kind: str = "", caption: str = "") -> Picture:
    """Return the picture of one image."""
    return Picture(data_uri(images.thumbnails[row], images.side), alt, kind, caption)


def neighbor_rows(
    images: ReportImages, features: Tensor, config: PretrainConfig
) -> list[PictureRow]:
    """Return random images, each with its nearest neighbors by cosine similarity."""
    of_crops = config.crops.count if config.crops.neighbors else 0
    count = min(of_crops or _NEIGHBORS, MAX_PICTURES)
    rows = torch.from_numpy(random_rows(images, _NEIGHBOR_ROWS, config.seed))
    return rows_of_neighbors(images, features, rows, count)


def rows_of_neighbors(
    images: ReportImages, features: Tensor, rows: Tensor, count: int = _NEIGHBORS
) -> list[PictureRow]:
    """Return these images, each with as many nearest neighbors by cosine similarity."""
    cosines, neighbors = nearest(features[rows], features, min(count, len(images) - 1), rows)
    found = []
    for row, values, others in zip(
        rows.tolist(), cosines.tolist(), neighbors.tolist(), strict=True
    ):
        label = images.label(row)
        pictures = [picture(images, row, f"image: {images.alt(row)}", "lead", label)]
        for value, other in zip(values, others, strict=True):
            kind = ("same" if label == images.label(other) else "other") if label else ""
            alt = f"cosine {value:.2f}: {images.alt(other)}"
            pictures.append(picture(images, other, alt, kind, f"{value:.2f}"))
        found.append(PictureRow(pictures))
    return found


def view_rows(encoder: Encoder, images: ReportImages, config: PretrainConfig) -> list[PictureRow]:
    """Return random images, each with augmented views and small crops of it."""
    rows = random_rows(images, _VIEW_ROWS, config.seed + 1)
    batch, specs = make_views(encoder, images, rows, config, _VIEWS)
    found = []
    for number, row in enumerate(batch.index.tolist()):
        caption = images.label(row) or "image"
        pictures = [picture(images, row, f"image: {images.alt(row)}", "lead", caption)]
        for spec, views in zip(specs, batch.views, strict=True):
            is_crop = config.crops.count > 0 and spec is specs[-1]
            alt = f"{'small crop' if is_crop else 'view'} of {images.name(row)}"
            pictures += [
                Picture(data_uri(view, images.side), alt, "crop" if is_crop else "")
                for view in spec.maker.to_pixels(views[:, number])
            ]
        found.append(PictureRow(pictures))
    return found


def make_views(
    encoder: Encoder, images: ReportImages, rows: Integers, config: PretrainConfig, count: int
) -> tuple[Batch, list[ViewSpec]]:
    """Make views of images as in the first epoch of a run; return them and their specifications.

    Small crops are left out if only one full view is wanted.
    """
    described = encoder.description
    source = with_format(images.source, described.channels, described.levels)
    specs = view_specs(config, source.channels, count=count)
    specs = specs if count > 1 else specs[:1]
    return views_of(source, rows, specs, config.seed), specs


def random_rows(images: ReportImages, count: int, seed: int) -> Integers:
    """Choose at most `count` images."""
    return np.random.default_rng(seed).permutation(len(images))[:count].astype(np.int64)
