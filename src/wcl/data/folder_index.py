"""What lies below a folder: listed once, kept, and believed for as long as it is true."""

import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wcl.data import kept_index
from wcl.data.kept_index import UNSETTLED, Stamp
from wcl.data.packed_names import PackedNames
from wcl.system.errors import InputError
from wcl.system.progress import track

EXTENSIONS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"}
_DOING, _AT_A_TIME = "listing files and folders, in thousands", 1000
_PARQUET = b".parquet"
_IMAGES = {extension.encode() for extension in EXTENSIONS}


class _Listing(NamedTuple):
    stamp: Stamp
    """Of the folder when it was listed; `UNSETTLED` for one that must be listed every time."""
    names: bytes
    """Images, parquet files and sub-folders (these with a / behind them), sorted, with a zero byte
    between them: in the order of their full paths, if each sub-folder is replaced by its own."""


class FolderIndex:
    """The images and parquet files below a folder; hidden ones are left out, link loops end.

    Listing millions of files takes minutes on a network file system. So the listing of every folder
    in the tree is kept, and only folders that have changed are listed again: adding, removing or
    renaming a file changes the times of its folder. What a link leads to may come and go without
    that, so folders with links in them are listed every time.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._place = os.fsencode(root)
        self._key = os.fsencode(root.absolute())
        self._kept: dict[bytes, _Listing] | None = None
        self._listings: dict[bytes, _Listing] = {}
        """By the folders' paths below the root, with a / behind them."""
        self._looked_at = itertools.count(1)

    def parquet_files(self) -> list[Path]:
        """The parquet files in the folder itself, or else in its sub-folder `data`."""
        for below in (b"", b"data/"):
            if (status := self._status(below)) is not None:
                for _ in track(self._list(below, status), _DOING):
                    pass
                names = self._listings[below].names.split(b"\0")
                found = [name for name in names if name.endswith(_PARQUET)]
                if found:
                    return [self.root / os.fsdecode(below + name) for name in found]
        return []

    def image_paths(self) -> PackedNames:
        """The images' paths below the folder, sorted."""
        for _ in track(self._list_all(), _DOING):
            pass
        paths = PackedNames(b"".join(self._in_order()))
        if len(paths) >= kept_index.WORTH_KEEPING and self._listings != self._kept:
            self._save()
        return paths

    def _list_all(self) -> Iterator[None]:
        """List every folder of the tree, with a pause after each thousand files and folders."""
        listed = self._listings
        self._listings = {}
        seen: set[tuple[int, int]] = set()
        pending = [b""]
        while pending:
            below = pending.pop()
            status = self._status(below)
            if status is None or (status.st_dev, status.st_ino) in seen:
                continue
            if status.st_ino:  # 0 on file systems that Windows knows no numbers of
                seen.add((status.st_dev, status.st_ino))
            if below in listed:
                self._listings[below] = listed[below]
            else:
                yield from self._list(below, status)
            names = self._listings[below].names
            if b"/" in names:
                folders = [name for name in names.split(b"\0") if name.endswith(b"/")]
                pending.extend(below + name for name in reversed(folders))

    def _list(self, below: bytes, status: os.stat_result) -> Iterator[None]:
        """Put one folder into `_listings`, from what is kept if it has not changed."""
        if next(self._looked_at) % _AT_A_TIME == 0:
            yield
        if self._kept is None:
            self._kept = kept_index.load("folder", self._key, _listings) or {}
        kept = self._kept.get(below)
        if kept is not None and kept.stamp == kept_index.stamp(status):
            self._listings[below] = kept
            return
        stamp = kept_index.stamp(status, kept_index.now())
        try:
            names, links = yield from _scan(self._folder(below), self._looked_at)
        except OSError as error:
            raise self._cannot_be_listed(below, error) from error
        self._listings[below] = _Listing(UNSETTLED if links else stamp, b"\0".join(sorted(names)))

    def _in_order(self) -> Iterator[bytes]:
        """The images' paths, each ended by a zero byte, in pieces."""
        pending = [b""]
        while pending:
            path = pending.pop()
            if path and not path.endswith(b"/"):
                yield path + b"\0"
            elif path in self._listings:
                names = self._listings[path].names
                if b"/" in names or _PARQUET in names:
                    pending.extend(
                        path + name
                        for name in reversed(names.split(b"\0"))
                        if not name.endswith(_PARQUET)
                    )
                elif names:  # images alone, as in most folders
                    yield path + names.replace(b"\0", b"\0" + path) + b"\0"

    def _status(self, below: bytes) -> os.stat_result | None:
        """None if there is no such folder, perhaps any more."""
        try:
            return os.stat(self._folder(below))  # noqa: PTH116  # names need not be text
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._cannot_be_listed(below, error) from error

    def _folder(self, below: bytes) -> bytes:
        return self._place + b"/" + below

    def _cannot_be_listed(self, below: bytes, error: OSError) -> InputError:
        where = self._folder(below).rstrip(b"/").decode(errors="replace")
        if isinstance(error, PermissionError):
            return InputError(f"{where}: may not be read; change its permissions")
        return InputError(f"{where}: cannot be listed ({error.strerror})")

    def _save(self) -> None:
        listings = self._listings.values()
        arrays = {
            "folders": kept_index.packed(b"\0".join(self._listings)),
            # No name is empty, so two zero bytes are between listings and nowhere else.
            "names": kept_index.packed(b"\0\0".join(listing.names for listing in listings)),
            "stamps": np.array([listing.stamp for listing in listings], dtype=np.int64),
        }
        kept_index.save("folder", self._key, arrays)


def _listings(kept: dict[str, Any]) -> dict[bytes, _Listing]:
    """From the arrays that `_save` kept."""
    folders = kept["folders"].tobytes().split(b"\0")
    names = kept["names"].tobytes().split(b"\0\0")
    stamps = map(tuple, kept["stamps"].tolist())
    return dict(zip(folders, map(_Listing, stamps, names), strict=True))


def _scan(
    folder: bytes, looked_at: Iterator[int]
) -> Generator[None, None, tuple[list[bytes], bool]]:
    """The names in a folder as a listing has them, and whether there are links among them."""
    names: list[bytes] = []
    links = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if next(looked_at) % _AT_A_TIME == 0:
                yield
            name = entry.name
            if name.startswith(b"."):
                continue
            try:
                links = links or entry.is_symlink()
                if entry.is_dir():
                    names.append(name + b"/")
                elif entry.is_file() and _is_known(name):
                    names.append(name)
            except OSError:  # a link to itself
                continue
    return names, links


def _is_known(name: bytes) -> bool:
    return name[name.rfind(b".") :].lower() in _IMAGES or name.endswith(_PARQUET)
