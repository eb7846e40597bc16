"""All images of a source, decoded once and without augmentation, in batches."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import Dataset

from wcl.data.decode import UnreadableImage, center_crop
from wcl.data.levels import Levels
from wcl.data.planes import Picture
from wcl.data.source import ArraySource, Source
from wcl.data.workers import Workers, worker_count
from wcl.system.errors import RunError, WorkerLost

BATCH = 256
"""Images of a batch."""


def plain_images(
    source: Source,
    size: int,
    channels: int,
    levels: Levels = (),
    num_workers: int = -1,
    rows: range | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the centers of the readable images: ((n, C, size, size) bytes, (n,) numbers).

    A batch covers BATCH consecutive images without the unreadable ones; empty batches are skipped.

    Args:
        source: the images.
        size, channels, levels: as for `center_crop`.
        num_workers: processes that decode photos; -1 chooses by the available cores.
        rows: numbers of the images, without gaps; None for all.
    """
    rows = range(len(source)) if rows is None else rows
    if (
        isinstance(source, ArraySource)
        and source.pixels.shape[1:] == (channels, size, size)
        and not source.unreadable
    ):
        pixels, numbers = source.pixels[rows.start : rows.stop], torch.arange(rows.start, rows.stop)
        yield from zip(pixels.split(BATCH), numbers.split(BATCH), strict=True)
        return
    crop = partial(center_crop, size=size, channels=channels, levels=levels)
    yield from decoded_batches(source, crop, num_workers, rows)


def decoded_batches(
    source: Source,
    prepare: Callable[[Picture], Tensor],
    num_workers: int = -1,
    rows: range | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all images as `prepare` returns them, and their numbers (n,), as `plain_images` does.

    Args:
        source: the images.
        prepare: maps an image to a tensor; it is sent to other processes.
        num_workers, rows: as for `plain_images`.
    """
    rows = range(len(source)) if rows is None else rows
    workers = 0 if isinstance(source, ArraySource) else worker_count(num_workers)
    prepared = _Prepared(source, prepare)
    decoders: Workers[range, tuple[Tensor, Tensor]] = Workers(source.name, prepared, workers)
    try:
        for pixels, index in decoders.done(
            [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
        ):
            if len(index):
                yield pixels, index
    except WorkerLost as error:
        raise RunError(f"{error}; give the same command again") from error
    finally:
        decoders.stop()


class _Prepared(Dataset[tuple[Tensor, Tensor]]):
    """Pixels and numbers of the readable images of a range."""

    def __init__(self, source: Source, prepare: Callable[[Picture], Tensor]) -> None:
        self.source = source
        self.prepare = prepare

    def __getitem__(self, rows: range) -> tuple[Tensor, Tensor]:
        prepared, readable = [], []
        for index in rows:
            with suppress(UnreadableImage):
                prepared.append(self.prepare(self.source.image(index)))
                readable.append(index)
        return torch.stack(prepared) if prepared else torch.empty(0), torch.tensor(readable)
