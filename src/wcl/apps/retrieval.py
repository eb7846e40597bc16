"""Opening of an encoder and its images, and display of results, for commands that use both."""

import os
from pathlib import Path

from torch import Tensor

from wcl.apps.contact_sheet import Tile, thumbnail
from wcl.config import RetrievalConfig
from wcl.data import Source, open_source, with_channels
from wcl.evaluation.features import features_and_rows
from wcl.models import opening
from wcl.models.encoder import Encoder
from wcl.system.files import free_name, new_file
from wcl.system.machine import best_device, check_workers
from wcl.system.paths import one_line

ROWS_SHOWN = 20
"""Rows of a contact sheet at most."""


def open_encoder(run: str | Path | Encoder, device: str, num_workers: int) -> Encoder:
    """Load an encoder, unless it is one already; the number of workers is only checked."""
    check_workers(num_workers)
    return opening.open_encoder(run, best_device(device))


def open_images(data: str | Path | Source) -> Source:
    """Open a source, unless it is one already."""
    return data if isinstance(data, Source) else open_source(str(data))


def image_features(encoder: Encoder, source: Source, num_workers: int) -> tuple[Tensor, Tensor]:
    """Return the features of the readable images, (n, D), and the images' indices, (n,)."""
    channels = encoder.description.channels
    return features_and_rows(encoder, with_channels(source, channels), num_workers)


def sheet_path(config: RetrievalConfig, default: str, as_json: bool) -> Path | None:
    """Return the file for the contact sheet; with --json there is one only on request."""
    if config.out:
        return new_file(config.out, (".png",))
    return None if as_json else free_name(default)


def image_tile(source: Source, index: int, caption: str) -> Tile:
    """Return a tile with an image, the caption and the image's short name."""
    return Tile(thumbnail(source.image(index)), caption, short_name(source.where(index)))


def short_name(path: str) -> str:
    """Return the folder and the name: photos in different folders often share their names."""
    return one_line("/".join(path.rsplit("/", 2)[-2:]))


def printable(path: str | Path) -> str:
    """Return a path as text: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode(errors="replace")
