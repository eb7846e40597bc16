"""What search and duplicates share: opening images, their features, and how results are shown."""

import os
from pathlib import Path

from torch import Tensor

from wcl.config import RetrievalConfig
from wcl.data import Source, open_source, with_channels
from wcl.evaluation.features import features_and_rows
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError
from wcl.system.files import free_name, new_file
from wcl.system.paths import one_line

ROWS_SHOWN = 20
"""Rows of a contact sheet at most."""


def open_images(data: str | Path | Source) -> Source:
    """Open a source, unless it is one already."""
    if data == "":
        raise InputError("--data: give the images to look at")
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


def short_name(path: str) -> str:
    """Return the folder and the name: photos in different folders often share their names."""
    return one_line("/".join(path.rsplit("/", 2)[-2:]))


def printable(path: str | Path) -> str:
    """Return a path as text: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode(errors="replace")
