"""Vectors a chunk at a time, and a folder of finished chunks to continue from after a stop."""

import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from wcl.apps.vector_files import Part
from wcl.data import Source, subset
from wcl.evaluation.features import BATCH, features_key, pixel_batches
from wcl.models.encoder import Encoder
from wcl.models.weights_file import read_header, read_weights, write_weights
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, holds_files
from wcl.system.progress import log, track

CHUNK = 4 * BATCH
"""Images per chunk: memory use, and the most that a stopped command computes again."""
_KEY = "wcl embed 1"  # start of the key of a folder of chunks


class Chunk(NamedTuple):
    """Vectors of some images of a source."""

    vectors: Tensor
    """(n, D)."""
    rows: Tensor
    """(n,) ascending indices of the images; unreadable images are left out."""


def chunks(
    encoder: Encoder, source: Source, first: int = 0, num_workers: int = -1
) -> Iterator[Chunk]:
    """Yield the vectors of the images from `first` (a multiple of CHUNK) on, CHUNK at a time.

    The limits of chunks, and so every bit of their vectors, do not depend on `first`. A chunk
    without readable images is left out.
    """
    if first >= len(source):
        return
    rest = subset(source, np.arange(first, len(source))) if first else source
    total = -(-len(rest) // BATCH)
    batches = track(pixel_batches(encoder, rest, num_workers), "computing vectors", total)
    for _, group in groupby(batches, key=lambda batch: int(batch[1][0]) // CHUNK):
        vectors, rows = zip(*((encoder.embed(pixels), rows) for pixels, rows in group), strict=True)
        yield Chunk(torch.cat(vectors), torch.cat(rows) + first)


class ChunkStore:
    """Chunks of one encoder and some sources; files of another encoder are removed."""

    def __init__(self, folder: Path, encoder: Encoder, sources: Sequence[Source]) -> None:
        """Open or create the folder.

        Raises:
            InputError: the path is taken by something else.
        """
        self.folder = folder
        self.sources = sources
        key = " ".join([_KEY, str(CHUNK), *(features_key(encoder, source) for source in sources)])
        file = folder / "key"
        found = file.read_bytes() if file.is_file() else b""
        free = not folder.exists() or (folder.is_dir() and not holds_files(folder))
        if folder.is_symlink() or not (free or found.startswith(_KEY.encode())):
            raise InputError(f"{folder}: is in the way and not from `wcl embed`; move it away")
        if found == key.encode():
            done = sum(min(self.images_done(n), len(s)) for n, s in enumerate(sources))
            total = sum(len(source) for source in sources)
            log(f"{folder}: continuing after {done:,} of {total:,} images")
            return
        if found:
            log(f"{folder}: from another encoder or other images; starting over")
        if folder.exists():
            self.remove()
        folder.mkdir()
        with atomic_write(file) as unfinished:
            unfinished.write_text(key, encoding="utf-8")

    def files(self, source: int) -> list[Path]:
        """Return the chunks of a source, in order, up to the first incomplete one."""
        found = sorted(self.folder.glob(f"{source}-*.safetensors"))
        return list(takewhile(lambda file: _length(file) > 0, found))

    def images_done(self, source: int) -> int:
        """Return how many images at the start of a source need no more work."""
        files = self.files(source)
        return (int(files[-1].stem.partition("-")[2]) + 1) * CHUNK if files else 0

    def add(self, source: int, chunk: Chunk) -> None:
        """Write a finished chunk."""
        number = int(chunk.rows[0]) // CHUNK
        file = self.folder / f"{source}-{number:08d}.safetensors"
        write_weights(file, {"vectors": chunk.vectors, "rows": chunk.rows})

    def count(self) -> int:
        """Return the number of vectors."""
        return sum(_length(file) for n in range(len(self.sources)) for file in self.files(n))

    def parts(self) -> Iterator[Part]:
        """Yield the output, one part per chunk."""
        files = [(s, file) for n, s in enumerate(self.sources) for file in self.files(n)]
        for source, file in track(files, "writing vectors"):
            chunk = read_weights(file)
            rows = chunk["rows"].tolist()
            labels = [_label(source, row) for row in rows]
            yield Part([source.where(row) for row in rows], labels, chunk["vectors"].numpy())

    def unreadable(self) -> Iterator[str]:
        """Yield the paths of the images without a vector."""
        for number, source in enumerate(self.sources):
            expected = 0
            for file in self.files(number):
                for row in read_weights(file)["rows"].tolist():
                    yield from map(source.where, range(expected, row))
                    expected = row + 1
            yield from map(source.where, range(expected, len(source)))

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def _length(file: Path) -> int:
    """Return the number of vectors in a chunk's file; 0 if the file is incomplete."""
    try:
        return int(read_header(file)["rows"]["shape"][0])
    except (OSError, SafetensorError, LookupError, TypeError, ValueError):
        return 0


def _label(source: Source, row: int) -> str:
    """Return the name of an image's class, or the names of its classes."""
    numbers: list[int] = []
    if source.labels is not None:
        numbers = [int(source.labels[row])]
    elif source.multi_labels is not None:
        numbers = (source.multi_labels[row] == 1).nonzero()[:, 0].tolist()
    names = ", ".join(source.classes[number] for number in numbers)
    # Folders need not have names in UTF-8; as in `Source.where`, other bytes are replaced.
    return os.fsencode(names).decode(errors="replace")
