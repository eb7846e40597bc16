"""`wcl embed`: the vectors of all images of a source in one file, in constant memory.

Vectors are computed a chunk at a time, and finished chunks stay in a folder beside the output, so
that a stopped command can continue. The output is assembled from the chunks at the end and appears
completely or not at all.
"""

import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from wcl.apps.retrieval import open_encoder, printable
from wcl.apps.vector_files import WRITERS, Layout, Part, paths_file
from wcl.config import EmbedConfig
from wcl.config.bounds import check_bounds
from wcl.data import Source, describe_left_out, open_split, subset, with_format
from wcl.data.plain_images import BATCH
from wcl.evaluation.features import features_key, none_can_be_read, pixel_batches
from wcl.models.encoder import Encoder
from wcl.models.weights_file import read_weights, write_weights
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, errors_naming, fsync, holds_files, must_be_new, new_file
from wcl.system.machine import use_threads
from wcl.system.paths import expanded, one_line
from wcl.system.progress import log, track

CHUNK = 4 * BATCH
"""Images per chunk: memory use, and the most that a stopped command computes again."""
_KEY = "wcl embed 1"  # start of the key of a folder of chunks
_UNREADABLE_NAMED = 5


def embed(run: str | Path | Encoder, config: EmbedConfig | None = None, **options: Any) -> Path:
    """Write path, label and vector of every image, like `wcl embed RUN --data SRC --out FILE`.

    Args:
        run: a run folder, an encoder file, `timm:NAME`, or an encoder.
        config: all options of the command.
        options: single options instead, such as `data="photos", out="vectors.parquet"`.

    Returns:
        The path of the file.

    Raises:
        InputError: no encoder, no such data, or an output that exists or cannot be written.
        OSError: writing failed; a second call continues where this one stopped.
    """
    config = config or EmbedConfig(**options)
    check_bounds(config)
    out = new_file(str(config.out), tuple(WRITERS))
    suffix = out.suffix.lower()
    partial = expanded(out.with_name(out.name + ".partial"))
    outputs = [paths_file(out), out] if suffix == ".npy" else [out]
    for file in outputs:
        must_be_new(file)
    use_threads(config.threads)
    encoder = open_encoder(run, config.device, config.num_workers)
    described = encoder.description
    opened = open_split(str(config.data), config.split)
    if left_out := describe_left_out(*opened):
        log(f"{config.data}: {left_out}")
    sources = [with_format(source, described.channels, described.levels) for source in opened]
    store = ChunkStore(partial, encoder, sources)
    try:
        for number, source in enumerate(sources):
            first = store.images_done(number)
            for vectors, rows in chunks(encoder, source, first, config.num_workers):
                store.add(number, vectors, rows)
    except KeyboardInterrupt:
        log("stopped; run the same command to continue")
        raise
    unreadable, total = store.unreadable(), sum(map(len, sources))
    count = total - len(unreadable)
    if count == 0:
        shutil.rmtree(partial)
        raise InputError(f"{config.data}: {none_can_be_read(total)}")
    with errors_naming(out, partial):
        texts = ["path", "label"] if store.labeled else ["path"]
        layout = Layout(count, encoder.feature_dim, texts)
        WRITERS[suffix](partial / out.name, store.parts(), layout)
        fsync(partial / out.name)
    for file in outputs:
        must_be_new(file)
        (partial / file.name).replace(file)
    fsync(out.parent)
    shutil.rmtree(partial)
    if unreadable:
        names = [one_line(source.where(row)) for source, row in unreadable[:_UNREADABLE_NAMED]]
        more = ", …" if len(unreadable) > _UNREADABLE_NAMED else ""
        log(
            f"{len(unreadable)} of {total} images cannot be read and are left out: "
            f"{', '.join(names)}{more}; `wcl data {config.data}` shows the reasons"
        )
    print(f"wrote {one_line(str(out))}: {count:,} vectors of {encoder.feature_dim} numbers")
    return out


def chunks(
    encoder: Encoder, source: Source, first: int = 0, num_workers: int = -1
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the vectors of the images from `first` (a multiple of CHUNK) on, CHUNK at a time.

    The limits of chunks, and so every bit of their vectors, do not depend on `first`. A chunk
    without readable images is left out.

    Yields:
        (n, D) vectors, and (n,) ascending indices of the readable images.
    """
    if first >= len(source):
        return
    rest = subset(source, np.arange(first, len(source))) if first else source
    total = -(-len(rest) // BATCH)
    batches = track(pixel_batches(encoder, rest, num_workers), "computing vectors", total)
    for _, group in groupby(batches, key=lambda batch: int(batch[1][0]) // CHUNK):
        vectors, rows = zip(*((encoder.embed(pixels), rows) for pixels, rows in group), strict=True)
        yield torch.cat(vectors), torch.cat(rows) + first


class ChunkStore:
    """A folder of finished chunks of one encoder and some sources, one file per chunk."""

    def __init__(self, folder: Path, encoder: Encoder, sources: Sequence[Source]) -> None:
        """Open or create the folder; chunks of another encoder or other images are removed.

        Raises:
            InputError: the path is taken by something else.
        """
        self.folder = folder
        self.sources = sources
        self.labeled = any(s.labels is not None or s.multi_labels is not None for s in sources)
        key = " ".join([_KEY, str(CHUNK), *(features_key(encoder, source) for source in sources)])
        file = folder / "key"
        found = file.read_bytes() if file.is_file() else b""
        free = not folder.exists() or (folder.is_dir() and not holds_files(folder))
        if folder.is_symlink() or not (free or found.startswith(_KEY.encode())):
            raise InputError(f"{folder}: is in the way and not from `wcl embed`; move it away")
        if found == key.encode():
            done = sum(min(self.images_done(n), len(s)) for n, s in enumerate(sources))
            log(f"{folder}: continuing after {done:,} of {sum(map(len, sources)):,} images")
            return
        if found:
            log(f"{folder}: from another encoder or other images; starting over")
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        with atomic_write(file) as unfinished:
            unfinished.write_text(key, encoding="utf-8")

    def files(self, source: int) -> list[Path]:
        """Return the chunks of a source, in order."""
        return sorted(self.folder.glob(f"{source}-*.safetensors"))

    def images_done(self, source: int) -> int:
        """Return how many images at the start of a source need no more work."""
        files = self.files(source)
        return (int(files[-1].stem.partition("-")[2]) + 1) * CHUNK if files else 0

    def add(self, source: int, vectors: Tensor, rows: Tensor) -> None:
        """Write a finished chunk."""
        file = self.folder / f"{source}-{int(rows[0]) // CHUNK:08d}.safetensors"
        write_weights(file, {"vectors": vectors, "rows": rows})

    def unreadable(self) -> list[tuple[Source, int]]:
        """Return the images without a vector, when all chunks are finished."""
        missing: list[tuple[Source, int]] = []
        for number, source in enumerate(self.sources):
            absent = np.ones(len(source), dtype=bool)
            for file in self.files(number):
                with safe_open(file, framework="pt") as chunk:
                    absent[chunk.get_tensor("rows")] = False
            missing += [(source, row) for row in np.flatnonzero(absent).tolist()]
        return missing

    def parts(self) -> Iterator[Part]:
        """Yield the output, one part per chunk."""
        files = [(s, file) for n, s in enumerate(self.sources) for file in self.files(n)]
        for source, file in track(files, "writing vectors"):
            chunk = read_weights(file)
            rows = chunk["rows"].tolist()
            texts = [[source.where(row) for row in rows]]
            if self.labeled:
                texts.append([_label(source, row) for row in rows])
            yield Part(texts, chunk["vectors"].numpy())


def _label(source: Source, row: int) -> str:
    """Return the name of an image's class, or the names of its classes; empty if it has none."""
    numbers: list[int] = []
    if source.labels is not None:
        numbers = [int(source.labels[row])]
    elif source.multi_labels is not None:
        numbers = (source.multi_labels[row] == 1).nonzero()[:, 0].tolist()
    names = ", ".join(source.classes[number] for number in numbers)
    return printable(names)
