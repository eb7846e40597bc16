"""Test images that are also training images, which inflate every result."""

import hashlib
from pathlib import Path

from wcl.data import Source
from wcl.data.decode import UnreadableImage
from wcl.data.source import ArraySource

_TAIL = 4096  # bytes


def overlap(train: Source, test: Source) -> list[str]:
    """Return the places of the test images that are also training images, byte for byte.

    Images in memory are compared by their pixels, files by their content, and other sources by
    their places. Of many photos, some have the same size by chance: only those are read, and only
    those whose last bytes match are read completely. Files that are no images do not count.
    """
    if isinstance(train, ArraySource) and isinstance(test, ArraySource):
        known = {_digest(image.numpy().tobytes()) for image in train.pixels}
        digests = (_digest(image.numpy().tobytes()) for image in test.pixels)
        return [test.where(i) for i, digest in enumerate(digests) if digest in known]
    places = {train.where(row) for row in range(len(train))}
    rows = {row: test.where(row) for row in range(len(test))}
    for key in (_size, _tail, _content):
        train_keys = {place: key(place) for place in places}
        test_keys = {row: key(place) for row, place in rows.items()}
        common = {*train_keys.values()} & {*test_keys.values()}
        places = {place for place, value in train_keys.items() if value in common}
        rows = {row: place for row, place in rows.items() if test_keys[row] in common}
    return [place for row, place in rows.items() if _is_image(test, row)]


def _size(place: str) -> int | str:
    """Return the size of a file; the place itself if it is not a file, or an empty one."""
    try:
        return Path(place).stat().st_size or place  # a pipe, whose reading would block, has none
    except OSError:
        return place


def _tail(place: str) -> bytes | str:
    return _content(place, _TAIL)


def _content(place: str, last: int | None = None) -> bytes | str:
    """Return a digest of the last bytes of a file, or of all; the place if it cannot be read."""
    size = _size(place)
    if isinstance(size, str):
        return place
    try:
        with Path(place).open("rb") as file:
            file.seek(max(0, size - (last or size)))
            return _digest(file.read())
    except OSError:
        return place


def _is_image(source: Source, row: int) -> bool:
    """Return whether the image can be opened; decoding it would take too long."""
    try:
        source.image(row).close()
    except UnreadableImage:
        return False
    return True


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
