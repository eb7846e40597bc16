"""A folder of images; its sub-folders, if any, are the classes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image

from wcl.data.decode import open_image
from wcl.data.folder_index import EXTENSIONS, FolderIndex
from wcl.data.source import Source
from wcl.system.errors import InputError

_SIZES_COMPARED = 1000


class ImageFiles(Source):
    """Image files by their paths below a folder."""

    root: Path
    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, index: int) -> Image.Image:
        return open_image(self.root / self.paths[index])

    def where(self, index: int) -> str:
        # Names need not be text.
        return os.fsencode(self.root / self.paths[index]).decode(errors="replace")

    def _identity(self, times: bool) -> Iterator[bytes]:
        """Yield all names, and the sizes of a thousand files.

        A network file system takes many minutes for the sizes of a million files, and cached sizes
        would not reveal a change. A thousand reveal a set that was resized or compressed again.
        Unlike times of change they are the same on every machine.
        """
        every = max(1, len(self) // _SIZES_COMPARED)
        root = os.fsencode(self.root) + b"/"
        for number, path in enumerate(map(os.fsencode, self.paths)):
            yield path + b"\0"
            if times or number % every == 0:
                yield _size(root + path, times)


class FolderSource(ImageFiles):
    """Image files below a folder, sorted by path.

    If every image is in a sub-folder and there are at least two of them, the first level of
    sub-folders names the classes. Otherwise there are no labels.
    """

    def __init__(self, index: FolderIndex) -> None:
        self.name = str(index.root)
        self.root = index.root
        self.paths = index.image_paths()
        if not self.paths:
            known = " ".join(sorted(EXTENSIONS))
            raise InputError(f"{self.root}: no images below this folder (looked for {known})")
        self._label_by_sub_folder()

    def _label_by_sub_folder(self) -> None:
        numbers: dict[str, int] = {}  # in the order of the paths, not of the names
        labels: list[int] = []
        for path in self.paths:
            first_level, nested, _ = path.partition("/")
            if not nested:
                return
            labels.append(numbers.setdefault(first_level, len(numbers)))
        if len(numbers) > 1:
            self.classes = sorted(numbers)
            ranks = {name: rank for rank, name in enumerate(self.classes)}
            self.labels = torch.tensor([ranks[name] for name in numbers])[torch.tensor(labels)]


def _size(path: bytes, time: bool) -> bytes:
    try:
        status = os.stat(path)  # noqa: PTH116  # building a Path would double the time
    except OSError:
        return b"gone"
    return f"{status.st_size} {status.st_mtime_ns if time else ''} ".encode()
