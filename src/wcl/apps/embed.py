"""`wcl embed`: the vectors of all images of a source in one file, in constant memory.

Vectors are computed a chunk at a time and every finished chunk is kept in a folder beside the
output, so that a command that was stopped goes on where it was. The output is put together from the
chunks at the end and appears whole or not at all.
"""

import csv
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from wcl.config import EmbedConfig
from wcl.data import Source, open_split, subset, with_channels
from wcl.evaluation.features import BATCH, features_key, none_can_be_read, pixel_batches
from wcl.models.encoder import Encoder, load
from wcl.models.weights_file import read_header, read_weights, write_weights
from wcl.system.errors import InputError
from wcl.system.files import (
    atomic_write,
    errors_naming,
    fsync,
    holds_files,
    must_be_new,
    new_file,
)
from wcl.system.machine import best_device, check_workers, use_threads
from wcl.system.paths import expanded, one_line
from wcl.system.progress import say, track

CHUNK = 4 * BATCH
"""Images whose vectors are in memory at a time; what a stopped command at most computes again."""
_KEY = "wcl embed 1"  # how the key of a folder of chunks begins
_NAMED = 5  # unreadable images that are named at the end


class Chunk(NamedTuple):
    """Vectors of some images of a source."""

    vectors: Tensor
    """(n, features)."""
    rows: Tensor
    """(n,) numbers of the images, in rising order; those that cannot be read are not among them."""


class Part(NamedTuple):
    """A chunk as the output has it."""

    paths: list[str]
    labels: list[str]
    """Name of each image's class; empty if it has none."""
    vectors: NDArray[np.float32]


def embed(run: str | Path | Encoder, config: EmbedConfig) -> Path:
    """Write path, label and vector of every image: the same as `wcl embed RUN --data SRC`.

    Raises:
        InputError: no encoder, no such data, or a file that cannot be or exists already.
        OSError: it cannot be written; called again, it goes on where it was.
    """
    out = new_file(config.out, tuple(_WRITERS))
    partial = expanded(out.with_name(out.name + ".partial"))
    beside = expanded(_paths_beside(out))
    if out.suffix.lower() == ".npy" and not partial.exists():
        must_be_new(beside)
    if not config.data:
        raise InputError("--data: say where the images are")
    use_threads(config.threads)
    check_workers(config.num_workers)
    encoder = run if isinstance(run, Encoder) else load(run, best_device(config.device))
    channels = encoder.description.channels
    sources = [with_channels(s, channels) for s in open_split(config.data, config.split)]
    kept = _Kept(partial, encoder, sources)
    try:
        for number, source in enumerate(sources):
            for chunk in chunks(encoder, source, kept.images_done(number), config.num_workers):
                kept.add(number, chunk)
    except KeyboardInterrupt:
        say("stopped; the same command goes on where it was")
        raise
    count = kept.count()
    if count == 0:
        kept.remove()
        raise InputError(f"{config.data}: {none_can_be_read(sum(map(len, sources)))}")
    labeled = any(_has_labels(source) for source in sources)
    whole = kept.folder / out.name
    with errors_naming(out, kept.folder):
        _WRITERS[out.suffix.lower()](whole, kept.parts(), count, encoder.feature_dim, labeled)
        fsync(whole)
    if out.suffix.lower() == ".npy":
        # What a command left there that was stopped at this very place is just the same.
        if not (beside.is_file() and filecmp.cmp(_paths_beside(whole), beside, shallow=False)):
            must_be_new(beside)
        _paths_beside(whole).replace(beside)
    must_be_new(out)
    whole.replace(out)
    fsync(out.parent)
    _name_unreadable(kept, count, config.data)
    kept.remove()
    print(f"wrote {one_line(str(out))}: {count:,} vectors of {encoder.feature_dim} numbers")
    return out


def chunks(
    encoder: Encoder, source: Source, first: int = 0, num_workers: int = -1
) -> Iterator[Chunk]:
    """Vectors of the images from `first` (a multiple of CHUNK) on, CHUNK images at a time.

    Where a chunk begins does not depend on `first`, and so its vectors do not either, to the last
    bit. A chunk without an image that can be read is left out.
    """
    if first >= len(source):
        return
    rest = subset(source, np.arange(first, len(source))) if first else source
    total = -(-len(rest) // BATCH)
    batches = track(pixel_batches(encoder, rest, num_workers), "computing vectors", total)
    for _, group in groupby(batches, key=lambda batch_size: int(batch_size[1][0]) // CHUNK):
        vectors, rows = zip(*((encoder.embed(pixels), rows) for pixels, rows in group), strict=True)
        yield Chunk(torch.cat(vectors), torch.cat(rows) + first)


class _Kept:
    """Finished chunks in a folder, of one encoder and these sources."""

    def __init__(self, folder: Path, encoder: Encoder, sources: Sequence[Source]) -> None:
        self.folder = folder
        self.sources = sources
        key = " ".join([_KEY, str(CHUNK), *(features_key(encoder, source) for source in sources)])
        file = folder / "key"
        found = file.read_bytes() if file.is_file() else b""
        free = not folder.exists() or (folder.is_dir() and not holds_files(folder))
        if folder.is_symlink() or not (free or found.startswith(_KEY.encode())):
            raise InputError(f"{folder}: is in the way, and not of this command; move it away")
        if found == key.encode():
            done = sum(min(self.images_done(n), len(s)) for n, s in enumerate(sources))
            total = sum(len(source) for source in sources)
            say(f"{folder}: going on after {done:,} of {total:,} images")
            return
        if found:
            say(f"{folder}: of another encoder or other images; starting anew")
        if folder.exists():
            self.remove()
        folder.mkdir()
        with atomic_write(file) as unfinished:
            unfinished.write_text(key)

    def files(self, source: int) -> list[Path]:
        """The chunks of a source, in order, up to the first that is not whole."""
        found = sorted(self.folder.glob(f"{source}-*.safetensors"))
        return list(takewhile(lambda file: _length(file) > 0, found))

    def images_done(self, source: int) -> int:
        files = self.files(source)
        return (_number(files[-1]) + 1) * CHUNK if files else 0

    def add(self, source: int, chunk: Chunk) -> None:
        number = int(chunk.rows[0]) // CHUNK
        file = self.folder / f"{source}-{number:08d}.safetensors"
        write_weights(file, {"vectors": chunk.vectors, "rows": chunk.rows})

    def count(self) -> int:
        """How many vectors there are."""
        return sum(_length(file) for n in range(len(self.sources)) for file in self.files(n))

    def parts(self) -> Iterator[Part]:
        files = [(s, file) for n, s in enumerate(self.sources) for file in self.files(n)]
        for source, file in track(files, "writing vectors"):
            chunk = read_weights(file)
            rows = chunk["rows"].tolist()
            labels = [_label(source, row) for row in rows]
            yield Part([source.where(row) for row in rows], labels, chunk["vectors"].numpy())

    def unreadable(self) -> Iterator[str]:
        """Where the images are that have no vector."""
        for number, source in enumerate(self.sources):
            expected = 0
            for file in self.files(number):
                for row in read_weights(file)["rows"].tolist():
                    yield from map(source.where, range(expected, row))
                    expected = row + 1
            yield from map(source.where, range(expected, len(source)))

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def _number(file: Path) -> int:
    return int(file.stem.partition("-")[2])


def _length(file: Path) -> int:
    """How many vectors are in a chunk's file; 0 if it was cut short by a failing machine."""
    try:
        return int(read_header(file)["rows"]["shape"][0])
    except (OSError, SafetensorError, LookupError, TypeError, ValueError):
        return 0


def _has_labels(source: Source) -> bool:
    return source.labels is not None or source.multi_labels is not None


def _label(source: Source, row: int) -> str:
    """The name of an image's class, or the names of its classes."""
    numbers: list[int] = []
    if source.labels is not None:
        numbers = [int(source.labels[row])]
    elif source.multi_labels is not None:
        numbers = (source.multi_labels[row] == 1).nonzero()[:, 0].tolist()
    names = ", ".join(source.classes[number] for number in numbers)
    # Names of folders need not be text; as in `Source.where`, what cannot be printed is replaced.
    return os.fsencode(names).decode(errors="replace")


def _name_unreadable(kept: _Kept, count: int, data: str) -> None:
    total = sum(len(source) for source in kept.sources)
    if missing := total - count:
        named = map(one_line, islice(kept.unreadable(), _NAMED))
        names = ", ".join(named) + (", …" if missing > _NAMED else "")
        said = f"{missing} of {total} images cannot be read and are left out: {names}"
        say(f"{said}; `wcl data {data}` says why")


def _write_parquet(
    file: Path, parts: Iterable[Part], count: int, width: int, labeled: bool
) -> None:
    """A row group for each part."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    texts = ["path", "label"] if labeled else ["path"]
    vector = pyarrow.list_(pyarrow.float32(), width)
    fields = [*((name, pyarrow.string()) for name in texts), ("vector", vector)]
    # Labels repeat; paths and numbers do not, and a dictionary of them would only cost.
    with ParquetWriter(file, pyarrow.schema(fields), use_dictionary=["label"]) as writer:
        for part in parts:
            columns = [part.paths, *([part.labels] if labeled else [])]
            vectors = pyarrow.FixedSizeListArray.from_arrays(part.vectors.reshape(-1), width)
            writer.write_table(pyarrow.table([*columns, vectors], schema=writer.schema))


def _write_npy(file: Path, parts: Iterable[Part], count: int, width: int, labeled: bool) -> None:
    """An array, and a table of what its rows are beside it."""
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": descr, "fortran_order": False, "shape": (count, width)}
    row = 0
    with (
        file.open("wb") as array,
        _paths_beside(file).open("w", newline="", encoding="utf-8") as table,
    ):
        np.lib.format.write_array_header_1_0(array, header)
        writer = csv.writer(table)
        writer.writerow(["row", "path", *(["label"] if labeled else [])])
        for part in parts:
            array.write(part.vectors.tobytes())
            for texts in _texts(part, labeled):
                writer.writerow([row, *texts])
                row += 1


def _write_csv(file: Path, parts: Iterable[Part], count: int, width: int, labeled: bool) -> None:
    """A line for each image, a column for each number: the shortest that reads as the same."""
    with file.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table)
        names = ["path", *(["label"] if labeled else [])]
        writer.writerow([*names, *(f"v{i}" for i in range(width))])
        for part in parts:
            for texts, vector in zip(_texts(part, labeled), part.vectors.astype(str), strict=True):
                writer.writerow([*texts, *vector])


def _texts(part: Part, labeled: bool) -> Iterator[tuple[str, ...]]:
    columns = [part.paths, part.labels] if labeled else [part.paths]
    return zip(*columns, strict=True)


def _paths_beside(file: Path) -> Path:
    return file.with_suffix(".paths.csv")


_WRITERS = {".parquet": _write_parquet, ".npy": _write_npy, ".csv": _write_csv}
