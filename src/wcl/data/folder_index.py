"""Index of the files below a folder, cached and checked against the folders' times of change."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wcl.data import index_cache
from wcl.data.index_cache import UNSETTLED, Stamp
from wcl.data.packed_names import PackedNames
from wcl.system.errors import InputError
from wcl.system.progress import track

EXTENSIONS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"}
EXTENSIONS |= {".avif", ".heic", ".heif", ".jp2"}
_PARQUET = b".parquet"
_IMAGES = {extension.encode() for extension in EXTENSIONS}


class _Listing(NamedTuple):
    stamp: Stamp
    """Of the folder before it was listed; `UNSETTLED` if it must be listed every time."""
    names: bytes
    """Images, parquet files and sub-folders (followed by /), sorted and separated by zero bytes:
    the order of the full paths, once each sub-folder is replaced by its own listing."""
    left_out: bytes
    """Number and extension of the other files, such as `10 .txt`, separated by zero bytes; names
    without an extension count as `.`."""


class FolderIndex:
    """The images and parquet files below a folder; hidden files are left out, link loops end.

    Listing millions of files takes minutes on a network file system. So the listing of every folder
    in the tree is cached, and only folders that have changed are listed again: adding, removing or
    renaming a file changes the times of its folder. The target of a link may change without that,
    so folders that contain links are listed every time.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = os.fsencode(root)
        self._key = os.fsencode(root.absolute())
        self._cached: dict[bytes, _Listing] | None = None
        self._listings: dict[bytes, _Listing] = {}
        """By the folder's path below the root, followed by /."""

    def parquet_files(self) -> list[Path]:
        """Return the parquet files in the folder itself, or else in its sub-folder `data`."""
        for below in (b"", b"data/"):
            if (status := self._status(below)) is not None:
                names = self._listing(below, status).names.split(b"\0")
                if files := [name for name in names if name.endswith(_PARQUET)]:
                    return [self.root / os.fsdecode(below + name) for name in files]
        return []

    def image_paths(self) -> PackedNames:
        """Return the images' paths below the folder, sorted."""
        for _ in track(self._list_all(), "listing folders"):
            pass
        paths = PackedNames(b"".join(self._in_order()))
        if len(paths) >= index_cache.MIN_IMAGES and self._listings != self._cached:
            self._save()
        return paths

    def left_out(self) -> dict[str, int]:
        """Count the files that are not among `image_paths` by extension; hidden ones are not."""
        counts: Counter[bytes] = Counter()
        for listing in self._listings.values():
            for entry in listing.left_out.split(b"\0") if listing.left_out else []:
                number, _, extension = entry.partition(b" ")
                counts[extension] += int(number)
            if _PARQUET in listing.names:
                names = listing.names.split(b"\0")
                counts[_PARQUET] += sum(name.endswith(_PARQUET) for name in names)
        return {_shown(extension): count for extension, count in counts.items()}

    def _list_all(self) -> Iterator[None]:
        """List every folder of the tree, and yield after each."""
        reached: dict[bytes, _Listing] = {}
        seen: set[tuple[int, int]] = set()
        pending = [b""]
        while pending:
            below = pending.pop()
            status = self._status(below)
            if status is None or (status.st_dev, status.st_ino) in seen:
                continue
            if status.st_ino:  # Windows reports 0 for some network file systems
                seen.add((status.st_dev, status.st_ino))
            reached[below] = self._listing(below, status)
            names = reached[below].names
            if b"/" in names:
                folders = [name for name in names.split(b"\0") if name.endswith(b"/")]
                pending.extend(below + name for name in reversed(folders))
            yield
        self._listings = reached  # without `data`, if that is a link to a folder seen before

    def _listing(self, below: bytes, status: os.stat_result) -> _Listing:
        """List one folder, unless it is listed already or the cached listing is still valid."""
        if below in self._listings:
            return self._listings[below]
        if self._cached is None:
            self._cached = index_cache.load("folder", self._key, _listings) or {}
        listing = self._cached.get(below)
        if listing is None or listing.stamp != index_cache.stamp(status):
            stamp = index_cache.stamp(status, index_cache.now())
            try:
                names, left_out, has_links = _scan(self._folder(below))
            except OSError as error:
                raise self._cannot_be_listed(below, error) from error
            counted = [b"%d %s" % (count, name) for name, count in sorted(left_out.items())]
            listing = _Listing(
                UNSETTLED if has_links else stamp, b"\0".join(sorted(names)), b"\0".join(counted)
            )
        self._listings[below] = listing
        return listing

    def _in_order(self) -> Iterator[bytes]:
        """Yield the images' paths, each terminated by a zero byte, many at a time."""
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
                elif names:  # only images, as in most folders
                    yield path + names.replace(b"\0", b"\0" + path) + b"\0"

    def _status(self, below: bytes) -> os.stat_result | None:
        """Return the status of a folder; None if there is no such folder (any more)."""
        try:
            return os.stat(self._folder(below))  # noqa: PTH116  # names need not be text
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._cannot_be_listed(below, error) from error

    def _folder(self, below: bytes) -> bytes:
        return self._root + b"/" + below

    def _cannot_be_listed(self, below: bytes, error: OSError) -> InputError:
        where = self._folder(below).rstrip(b"/").decode(errors="replace")
        if isinstance(error, PermissionError):
            return InputError(f"{where}: may not be read; change its permissions")
        return InputError(f"{where}: cannot be listed ({error.strerror})")

    def _save(self) -> None:
        listings = self._listings.values()
        arrays = {
            "folders": index_cache.as_array(b"\0".join(self._listings)),
            # No name is empty, so only the ends of listings have two zero bytes.
            "names": index_cache.as_array(b"\0\0".join(listing.names for listing in listings)),
            "left_out": index_cache.as_array(b"\0\0".join(one.left_out for one in listings)),
            "stamps": np.array([listing.stamp for listing in listings], dtype=np.int64),
        }
        index_cache.save("folder", self._key, arrays)


def _listings(cached: dict[str, Any]) -> dict[bytes, _Listing]:
    """Return the listings from the arrays of `FolderIndex._save`."""
    folders = cached["folders"].tobytes().split(b"\0")
    names, left_out = (cached[key].tobytes().split(b"\0\0") for key in ("names", "left_out"))
    stamps = map(tuple, cached["stamps"].tolist())
    listings = [_Listing(*each) for each in zip(stamps, names, left_out, strict=True)]
    return dict(zip(folders, listings, strict=True))


def _shown(extension: bytes) -> str:
    return "without extension" if extension == b"." else extension.decode(errors="replace")


def _scan(folder: bytes) -> tuple[list[bytes], Counter[bytes], bool]:
    """Return the names in a folder as in `_Listing`, the others, and whether it contains links."""
    names: list[bytes] = []
    left_out: Counter[bytes] = Counter()
    has_links = False
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b"."):
                continue
            try:
                has_links = has_links or entry.is_symlink()
                if entry.is_dir():
                    names.append(name + b"/")
                elif entry.is_file():
                    extension = (b"." + name.rpartition(b".")[2] if b"." in name else b".").lower()
                    if extension in _IMAGES or name.endswith(_PARQUET):
                        names.append(name)
                    else:
                        left_out[extension] += 1
            except OSError:  # a link to itself
                continue
    return names, left_out, has_links
