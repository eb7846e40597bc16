"""How the neighbors of images changed since the pretrained weights that a run started from."""

from dataclasses import dataclass, replace

import torch

from wcl.data import with_format
from wcl.evaluation.features import features_and_rows
from wcl.evaluation.references import pretrained_encoder
from wcl.neighbors import nearest
from wcl.report.images import EncodedImages, ReportImages
from wcl.report.pictures import PictureRow, rows_of_neighbors
from wcl.system.errors import InputError

_NEIGHBORS = 10
_SHOWN = 4  # images


@dataclass
class ChangedNeighbors:
    """The share of neighbors that changed, and the images whose neighbors changed most."""

    k: int
    share: float
    rows: list[PictureRow]
    """For each image its neighbors before and after."""


def changed_neighbors(encoded: EncodedImages, images: ReportImages) -> ChangedNeighbors | None:
    """Compare with the untouched encoder; None if there is none, or it is no longer there."""
    encoder = encoded.encoder
    try:
        untouched = pretrained_encoder(encoder)
    except InputError:  # the scores say why
        return None
    if untouched is None:
        return None
    source = with_format(images.source, encoder.description.channels, encoder.description.levels)
    before, _ = features_and_rows(untouched, source)
    k = min(_NEIGHBORS, len(images) - 1)
    every = torch.arange(len(images))
    old, new = (nearest(f, f, k, every)[1] for f in (before, encoded.features))
    kept = (old[:, :, None] == new[:, None, :]).any(dim=2).float().mean(dim=1)
    most = kept.argsort(stable=True)[:_SHOWN]
    pairs = zip(
        rows_of_neighbors(images, before, most),
        rows_of_neighbors(images, encoded.features, most),
        strict=True,
    )
    rows = [
        replace(row, caption=caption)
        for pair in pairs
        for row, caption in zip(pair, ("untouched", "adapted"), strict=True)
    ]
    return ChangedNeighbors(k, 1 - float(kept.mean()), rows)
