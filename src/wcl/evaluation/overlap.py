"""Test images that are also training images, which inflate every result."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from wcl.data import Source
from wcl.data.decode import UnreadableImage, open_image
from wcl.data.folder import ImageFiles
from wcl.data.source import ArraySource, Subset

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
    files, test_files = dict(_files(train)), dict(_files(test))
    if not (files and test_files):
        places = {train.where(i) for i in range(len(train))}
        return [place for i in range(len(test)) if (place := test.where(i)) in places]
    train_files = set(files.values())
    for key in (_size, _tail, _content):
        train_keys = {file: key(file) for file in train_files}
        test_keys = {number: key(file) for number, file in test_files.items()}
        common = {*train_keys.values()} & {*test_keys.values()}
        train_files = {file for file, value in train_keys.items() if value in common}
        test_files = {n: file for n, file in test_files.items() if test_keys[n] in common}
    return [test.where(number) for number, file in test_files.items() if _is_image(file)]


def _files(source: Source) -> Iterator[tuple[int, Path]]:
    """Yield the number and the file of each image, if the images are files."""
    if isinstance(source, Subset):
        inner = dict(_files(source.source))
        yield from ((new, inner[old]) for new, old in enumerate(source.indices.tolist()) if inner)
    elif isinstance(source, ImageFiles):
        yield from ((number, source.root / path) for number, path in enumerate(source.paths))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else -1  # reading a pipe would block
    except OSError:
        return -1


def _tail(file: Path) -> bytes:
    return _content(file, max(0, _size(file) - _TAIL))


def _content(file: Path, start: int = 0) -> bytes:
    """Return a digest of the content, or of the path if the file cannot be read."""
    if _size(file) >= 0:
        try:
            with file.open("rb") as opened:
                opened.seek(start)
                return _digest(opened.read())
        except OSError:
            pass
    return _digest(str(file).encode(errors="replace"))


def _is_image(file: Path) -> bool:
    """Return whether the file starts like an image; decoding it would take too long."""
    try:
        open_image(file).close()
    except UnreadableImage:
        return False
    return True


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
