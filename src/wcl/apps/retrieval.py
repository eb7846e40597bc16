"""Opening of an encoder and its images, and display of results, for commands that use both."""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from wcl.apps.contact_sheet import Tile, thumbnail
from wcl.data import Source, open_source, with_format
from wcl.evaluation.features import features_and_rows
from wcl.models import opening
from wcl.models.encoder import Encoder
from wcl.system.files import atomic_write, free_name, must_be_new, new_file
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
    described = encoder.description
    prepared = with_format(source, described.channels, described.levels)
    return features_and_rows(encoder, prepared, num_workers)


def sheet_path(out: str, default: str, as_json: bool) -> Path | None:
    """Return the file for the contact sheet; with --json there is one only on request."""
    if out:
        return new_file(out, (".png",))
    return None if as_json else free_name(default)


def table_and_sheet(out: str, default: str, as_json: bool) -> tuple[Path, Path] | None:
    """Return the files for a CSV table and its contact sheet, as `sheet_path` does."""
    if not out:
        return None if as_json else (free_name(f"{default}.csv"), free_name(f"{default}.png"))
    table = new_file(out, (".csv",))
    must_be_new(table.with_suffix(".png"))
    return table, table.with_suffix(".png")


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file, completely or not at all."""
    with (
        atomic_write(path) as unfinished,
        unfinished.open("w", newline="", encoding="utf-8", errors="replace") as file,
    ):
        csv.writer(file).writerows([header, *rows])


def image_tile(source: Source, index: int, caption: str) -> Tile:
    """Return a tile with an image, the caption and the image's short name."""
    image = thumbnail(source.image(index), source.levels)
    return Tile(image, caption, short_name(source.where(index)))


def short_name(path: str) -> str:
    """Return the folder and the name: photos in different folders often share their names."""
    return one_line("/".join(path.rsplit("/", 2)[-2:]))


def printable(path: str | Path) -> str:
    """Return a path as text: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode(errors="replace")
