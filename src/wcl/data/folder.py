"""A folder of images; its sub-folders, if any, are the classes."""

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from wcl.data.decode import open_image
from wcl.data.folder_index import EXTENSIONS, FolderIndex
from wcl.data.matching_files import MatchingFiles
from wcl.data.planes import Picture
from wcl.data.source import Source
from wcl.system.errors import InputError
from wcl.system.paths import one_line

_SIZES_COMPARED = 1000
_EXTENSIONS_NAMED = 8


class FileList(Source):
    """Image files by their paths below a folder, wherever that is."""

    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    @abstractmethod
    def _stamps(self, indices: range, times: bool) -> Iterator[bytes]:
        """Yield the sizes of some files, and if wanted their times of change."""

    def _identity(self, times: bool) -> Iterator[bytes]:
        """Yield all names, and the sizes of a thousand files.

        A network file system takes many minutes for the sizes of a million files, and cached sizes
        would not reveal a change. A thousand reveal a set that was resized or compressed again.
        Unlike times of change they are the same on every machine.
        """
        every = 1 if times else max(1, len(self) // _SIZES_COMPARED)
        stamps = self._stamps(range(0, len(self), every), times)
        for number, path in enumerate(map(os.fsencode, self.paths)):
            yield path + b"\0"
            if number % every == 0:
                yield next(stamps)

    def _use(self, paths: Sequence[str], left_out: Mapping[str, int]) -> None:
        """Take these paths, and label the images.

        If every image is in a sub-folder and there are at least two of them, the first level of
        sub-folders names the classes. Otherwise there are no labels.

        Raises:
            InputError: there are no paths.
        """
        self.left_out = left_out
        if not paths:
            known = " ".join(sorted(EXTENSIONS))
            found = f"; {described}" if (described := describe_left_out(self)) else ""
            raise InputError(
                f"{self.name}: no images below this folder (looked for {known}){found}"
            )
        self.paths = paths
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


class ImageFiles(FileList):
    """Image files below a local folder."""

    root: Path

    def image(self, index: int) -> Picture:
        return open_image(self.root / self.paths[index])

    def where(self, index: int) -> str:
        # Names need not be text.
        return os.fsencode(self.root / self.paths[index]).decode(errors="replace")

    def _stamps(self, indices: range, times: bool) -> Iterator[bytes]:
        root = os.fsencode(self.root) + b"/"
        for index in indices:
            yield _size(root + os.fsencode(self.paths[index]), times)


class FolderSource(ImageFiles):
    """Image files below a local folder, sorted by path; sub-folders name the classes."""

    def __init__(self, index: FolderIndex | MatchingFiles[Path]) -> None:
        self.name = str(index.root)
        self.root = index.root
        self._use(index.image_paths(), index.left_out())


def describe_left_out(*sources: Source) -> str:
    """Count the files beside the images that are not read; return an empty text without any.

    >>> from types import SimpleNamespace as Folder
    >>> describe_left_out(Folder(left_out={"without extension": 1, ".txt": 1200}))
    '1,201 files are not images that wcl reads and are left out: 1,200 .txt, 1 without extension'
    """
    counts: Counter[str] = Counter()
    for source in sources:
        counts.update(source.left_out)
    if not counts:
        return ""
    named = [
        f"{count:,} {one_line(extension)}"
        for extension, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    more = ["…"] if len(counts) > _EXTENSIONS_NAMED else []
    files = "1 file is not an image that wcl reads and is"
    if counts.total() > 1:
        files = f"{counts.total():,} files are not images that wcl reads and are"
    return f"{files} left out: {', '.join([*named[:_EXTENSIONS_NAMED], *more])}"


def _size(path: bytes, time: bool) -> bytes:
    try:
        status = os.stat(path)  # noqa: PTH116  # building a Path would double the time
    except OSError:
        return b"gone"
    return f"{status.st_size} {status.st_mtime_ns if time else ''} ".encode()
