"""Test images that were trained on: they flatter every figure."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from wcl.data import Source
from wcl.data.decode import UnreadableImage, open_image
from wcl.data.folder import ImageFiles
from wcl.data.source import ArraySource, Subset

_END = 4096  # bytes


def overlap(train: Source, test: Source) -> list[str]:
    """Where the test images are that are among the training images too, byte for byte.

    Images in memory are compared by their pixels and files by their bytes, of which only those are
    read that have a partner of the same length, and whole only if it ends alike: of many photos,
    some are as long as others. What is no image, such as an empty file, does not count. Other
    sources are compared by where images are.
    """
    if isinstance(train, ArraySource) and isinstance(test, ArraySource):
        known = {_digest(image.numpy().tobytes()) for image in train.pixels}
        pairs = ((i, _digest(image.numpy().tobytes())) for i, image in enumerate(test.pixels))
        return [test.where(i) for i, digest in pairs if digest in known]
    train_files, test_files = (dict(_files(source)) for source in (train, test))
    if not (train_files and test_files):
        places = {train.where(i) for i in range(len(train))}
        return [where for i in range(len(test)) if (where := test.where(i)) in places]
    partners = set(train_files.values())
    for look in (_size, _end, _content):  # each at those alone that had a partner before
        ours = {file: look(file) for file in partners}
        theirs = {number: look(file) for number, file in test_files.items()}
        common = {*ours.values()} & {*theirs.values()}
        partners = {file for file, found in ours.items() if found in common}
        test_files = {n: file for n, file in test_files.items() if theirs[n] in common}
    return [test.where(number) for number, file in test_files.items() if _is_image(file)]


def _files(source: Source) -> Iterator[tuple[int, Path]]:
    """The files of a source by the numbers of the images, if it has any."""
    if isinstance(source, Subset):
        inner = dict(_files(source.source))
        yield from ((new, inner[old]) for new, old in enumerate(source.indices.tolist()) if inner)
    elif isinstance(source, ImageFiles):
        yield from ((number, source.root / path) for number, path in enumerate(source.paths))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else -1
    except OSError:
        return -1


def _end(file: Path) -> bytes:
    """A digest of the last few kilobytes, or of all if there is no more."""
    return _content(file, last=_END)


def _content(file: Path, last: int = 0) -> bytes:
    """A digest of what is in a file; of its place if it cannot be read."""
    try:
        if file.is_file():  # a pipe would keep us waiting
            with file.open("rb") as opened:
                if last:
                    opened.seek(max(0, os.fstat(opened.fileno()).st_size - last))
                return _digest(opened.read())
    except OSError:
        pass
    return _digest(str(file).encode())


def _is_image(file: Path) -> bool:
    """Whether it begins as an image does: to decode all would take as long as an evaluation."""
    try:
        open_image(file).close()
    except UnreadableImage:
        return False
    return True


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
