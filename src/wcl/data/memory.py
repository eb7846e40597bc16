"""Load a source of small images into memory."""

import torch

from wcl.data.decode import UnreadableImage, upright_size, whole_pixels
from wcl.data.source import ArraySource, Source
from wcl.system.progress import track

_LARGEST_SIDE = 64
_MAX_BYTES = 8 * 2**30
_PROBED = 16


def in_memory(source: Source) -> Source:
    """Load a source whose images are small and of one size; return any other unchanged.

    Images that cannot be read keep their number and are listed in `unreadable`.
    """
    if isinstance(source, ArraySource):
        return source
    size = _common_size(source)
    if size is None or len(source) * source.channels * size[0] * size[1] > _MAX_BYTES:
        return source
    pixels = torch.zeros(len(source), source.channels, *size, dtype=torch.uint8)
    loaded = ArraySource(source.name, pixels, source.labels, source.classes)
    loaded.multi_labels = source.multi_labels
    loaded.levels, loaded.left_out, loaded.origin = source.levels, source.left_out, source
    loaded.places = []
    for index in track(range(len(source)), "reading images"):
        loaded.places.append(source.where(index))
        try:
            image = whole_pixels(source.image(index), source.channels, source.levels)
        except UnreadableImage as error:
            loaded.unreadable[index] = f"{source.where(index)}: {error}"
            continue
        if image.shape[1:] != size:
            return source
        pixels[index] = image
    return loaded


def _common_size(source: Source) -> tuple[int, int] | None:
    """Return the common (height, width) of a sample; None if they differ or are too large."""
    sizes = set()
    for index in range(0, len(source), max(1, len(source) // _PROBED)):
        try:
            sizes.add(upright_size(source.image(index)))
        except UnreadableImage:
            continue
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    return size if max(size) <= _LARGEST_SIDE else None
