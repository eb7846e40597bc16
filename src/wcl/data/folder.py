"""A folder of images, nested or flat; sub-folders are classes where there are any."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image

from wcl.data.decode import open_image
from wcl.data.source import Source
from wcl.errors import InputError

EXTENSIONS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"}


class ImageFiles(Source):
    """Image files by their paths below a folder."""

    root: Path
    paths: list[str]

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, index: int) -> Image.Image:
        return open_image(self.root / self.paths[index])

    def where(self, index: int) -> str:
        # Names need not be text; what cannot be printed is replaced.
        return os.fsencode(self.root / self.paths[index]).decode(errors="replace")

    def _identity(self, times: bool) -> Iterator[bytes]:
        for path in self.paths:
            yield os.fsencode(path) + b"\0"
            if times:
                yield _size_and_time(self.root / path)


class FolderSource(ImageFiles):
    """Image files below a folder, sorted by path.

    If every image lies in a sub-folder and there are at least two sub-folders, the first level of
    them names the classes. Otherwise there are no labels: none are invented.
    """

    def __init__(self, root: Path) -> None:
        self.name = str(root)
        self.root = root
        self.paths = _images_below(root)
        if not self.paths:
            known = " ".join(sorted(EXTENSIONS))
            raise InputError(f"{root}: no images below this folder (looked for {known})")
        first_levels = [path.split("/", 1)[0] for path in self.paths]
        nested = all("/" in path for path in self.paths)
        classes = sorted(set(first_levels)) if nested else []
        if len(classes) > 1:
            number = {name: i for i, name in enumerate(classes)}
            self.classes = classes
            self.labels = torch.tensor([number[name] for name in first_levels])


def _size_and_time(path: Path) -> bytes:
    try:
        status = path.stat()
    except OSError:
        return b"gone"
    return f"{status.st_size} {status.st_mtime_ns} ".encode()


def _images_below(root: Path) -> list[str]:
    """Paths relative to the root, sorted; hidden files are left out, link loops end."""
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            status = (root / below).stat()
            entries = sorted(os.scandir(root / below), key=lambda entry: entry.name, reverse=True)
        except PermissionError as error:
            raise InputError(f"{root / below}: may not be read; change its permissions") from error
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{below}{entry.name}"
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError:  # a link to itself
                continue
            if is_folder:
                pending.append(f"{path}/")
            elif is_file and os.path.splitext(entry.name)[1].lower() in EXTENSIONS:  # noqa: PTH122
                found.append(path)
    return sorted(found)
