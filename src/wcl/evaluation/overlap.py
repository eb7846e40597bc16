"""Test images that were trained on: they flatter every figure."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from wcl.data import Source
from wcl.data.decode import UnreadableImage, open_image
from wcl.data.folder import ImageFiles
from wcl.data.source import ArraySource, Subset


def overlap(train: Source, test: Source) -> list[str]:
    """Where the test images are that are among the training images too, byte for byte.

    Images in memory are compared by their pixels and files by their bytes, of which only those are
    read that have a partner of the same length; what is no image, such as an empty file, does not
    count. Other sources are compared by where images are.
    """
    if isinstance(train, ArraySource) and isinstance(test, ArraySource):
        known = {_digest(image.numpy().tobytes()) for image in train.pixels}
        pairs = ((i, _digest(image.numpy().tobytes())) for i, image in enumerate(test.pixels))
        return [test.where(i) for i, digest in pairs if digest in known]
    train_files, test_files = (dict(_files(source)) for source in (train, test))
    if not (train_files and test_files):
        places = {train.where(i) for i in range(len(train))}
        return [where for i in range(len(test)) if (where := test.where(i)) in places]
    sizes = {_size(file) for file in test_files.values()}
    candidates = {file for file in train_files.values() if _size(file) in sizes}
    sizes = {_size(file) for file in candidates}
    known = {_digest(_content(file)) for file in candidates}
    return [
        test.where(index)
        for index, file in test_files.items()
        if _size(file) in sizes and _digest(_content(file)) in known and _is_image(file)
    ]


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


def _content(file: Path) -> bytes:
    try:
        if file.is_file():  # a pipe would keep us waiting
            return file.read_bytes()
    except OSError:
        pass
    return str(file).encode()


def _is_image(file: Path) -> bool:
    """Whether it begins as an image does: to decode all would take as long as an evaluation."""
    try:
        open_image(file).close()
    except UnreadableImage:
        return False
    return True


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
