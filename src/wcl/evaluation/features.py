"""Features of all images of a source, without augmentation."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from wcl.data.decode import UnreadableImage, centre_crop
from wcl.data.loader import worker_count
from wcl.data.source import ArraySource, Source
from wcl.encoder import Encoder
from wcl.errors import InputError
from wcl.progress import console, track

_BATCH = 256


def features(encoder: Encoder, source: Source, workers: int = -1) -> tuple[Tensor, Tensor]:
    """Features and labels of the images that can be read.

    Returns:
        (n, features) and (n,) on the host.
    """
    assert source.labels is not None
    parts, kept = [], []
    total = -(-len(source) // _BATCH)
    for pixels, index in track(
        pixel_batches(encoder, source, workers), "computing features", total
    ):
        parts.append(encoder.embed(pixels))
        kept.append(index)
    rows = torch.cat(kept) if kept else torch.empty(0, dtype=torch.long)
    if len(rows) == 0:
        raise InputError(f"{source.name}: none of its images can be read")
    return torch.cat(parts), source.labels[rows]


def pixel_batches(
    encoder: Encoder, source: Source, workers: int = -1
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images as the encoder wants them: ((n, C, size, size) bytes, (n,) numbers)."""
    size = encoder.description.size
    if (
        isinstance(source, ArraySource)
        and source.pixels.shape[1:] == (encoder.description.channels, size, size)
        and not source.unreadable
    ):
        numbers = torch.arange(len(source))
        yield from zip(source.pixels.split(_BATCH), numbers.split(_BATCH), strict=True)
        return
    crops = _CentreCrops(source, size, encoder.description.channels)
    in_memory = isinstance(source, ArraySource)
    skipped = 0
    for pixels, index, unreadable in DataLoader(
        crops,
        batch_size=_BATCH,
        collate_fn=_collate,
        num_workers=0 if in_memory else worker_count(workers),
        generator=torch.Generator(),
    ):
        skipped += len(unreadable)
        if len(index):
            yield pixels, index
    if skipped:
        console().print(f"{source.name}: {skipped} images cannot be read; left out", markup=False)


class _CentreCrops(Dataset[tuple[int, Tensor | str]]):
    def __init__(self, source: Source, size: int, channels: int) -> None:
        self.source = source
        self.size = size
        self.channels = channels

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[int, Tensor | str]:
        try:
            return index, centre_crop(self.source.image(index), self.size, self.channels)
        except UnreadableImage as error:
            return index, str(error)


def _collate(items: list[tuple[int, Tensor | str]]) -> tuple[Tensor, Tensor, list[int]]:
    pixels = [pixels for _, pixels in items if isinstance(pixels, Tensor)]
    index = [index for index, pixels in items if isinstance(pixels, Tensor)]
    unreadable = [index for index, pixels in items if isinstance(pixels, str)]
    return torch.stack(pixels) if pixels else torch.empty(0), torch.tensor(index), unreadable
