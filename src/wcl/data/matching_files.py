"""Index of the files below a folder, local or remote, whose paths match a pattern."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from wcl.data.folder_index import EXTENSIONS
from wcl.data.packed_names import PackedNames
from wcl.data.remote_path import RemotePath, is_http, is_url, split_url
from wcl.system.errors import InputError
from wcl.system.paths import expanded
from wcl.system.progress import track

P = TypeVar("P", Path, RemotePath)
_MAX_DEPTH = 32
_MAGIC = re.compile(r"[*?[]")
_MAGIC_IN_HTTP = re.compile(r"[*[]")  # a question mark starts the query


class MatchingFiles(Generic[P]):
    """The images and parquet files below a folder that match a pattern; hidden ones are left out.

    Only folders that may contain such files are listed.

    Args:
        root: the folder.
        pattern: `*`, `?` and `[…]` match within a name, and `**` any number of folders.
    """

    def __init__(self, root: P, pattern: str = "**") -> None:
        self.root: P = root
        self.pattern = pattern
        self._parts = pattern.split("/")
        self._left_out: Counter[str] = Counter()

    def image_paths(self) -> PackedNames:
        """Return the images' paths below the folder, sorted."""
        files = self._files()
        paths = (os.fsencode(path) for path in files if _extension(path) in EXTENSIONS)
        others = (path for path in files if _extension(path) not in EXTENSIONS)
        self._left_out = Counter(_extension(path) or "without extension" for path in others)
        found = PackedNames(b"".join(path + b"\0" for path in sorted(paths)))
        if not found and self.pattern != "**":
            known = " ".join(sorted(EXTENSIONS))
            raise InputError(
                f"{self.root}: no image below this folder matches {self.pattern} (looked for "
                f"{known}); ** stands for any number of folders"
            )
        return found

    def left_out(self) -> dict[str, int]:
        """Count the matching files that are not among `image_paths`, by extension."""
        return dict(self._left_out)

    def parquet_files(self) -> list[P]:
        """Return the parquet files, sorted."""
        paths = (path for path in self._files() if path.endswith(".parquet"))
        return [self.root / path for path in sorted(paths, key=os.fsencode)]

    def _files(self) -> list[str]:
        found: set[str] = set()
        for _ in track(self._list_all(found), "listing folders"):
            pass
        return list(found)

    def _list_all(self, found: set[str]) -> Iterator[None]:
        """List the folders and collect the files that match; yield after each folder."""
        pending = [""]
        while pending:
            folder = pending.pop()
            for name in _entries(self.root / folder if folder else self.root):
                path = f"{folder}{name}"
                parts = path.rstrip("/").split("/")
                if any(part.startswith(".") for part in parts):
                    continue
                if not name.endswith("/") and matches(parts, self._parts):
                    found.add(path)
                elif name.endswith("/") and matches(parts, self._parts, partly=True):
                    pending.append(path)
                if len(parts) > _MAX_DEPTH:
                    raise InputError(
                        f"{self.root / path}: more than {_MAX_DEPTH} folders deep; a link there "
                        "may lead back to its own folder"
                    )
            yield


def split_pattern(spec: str) -> tuple[Path | RemotePath, str]:
    """Return the folder of a source, and the pattern of the paths below it; empty if it has none.

    >>> root, pattern = split_pattern("s3://bucket/photos/2024-*/**/*.jpg")
    >>> str(root), pattern
    ('s3://bucket/photos', '2024-*/**/*.jpg')
    """
    if is_url(spec):
        head, tail = split_url(spec)
        start = head.find("://") + 3
        magic = _MAGIC_IN_HTTP if is_http(head) else _MAGIC
        if (found := magic.search(head, start)) is None:
            return RemotePath(spec), ""
        cut = head.rfind("/", start, found.start()) + 1 or start
        return RemotePath(head[:cut] + tail), head[cut:]
    path = expanded(spec)
    first = next((i for i, part in enumerate(path.parts) if _MAGIC.search(part)), None)
    if first is None or path.exists():
        return path, ""
    return Path(*path.parts[:first]), "/".join(path.parts[first:])


def matches(parts: list[str], pattern: list[str], partly: bool = False) -> bool:
    """Return whether the parts of a path match those of a pattern, or may at its start (`partly`).

    >>> matches(["a", "b", "c.jpg"], ["**", "*.jpg"]), matches(["a"], ["*", "*.jpg"], partly=True)
    (True, True)
    """
    if not parts:
        return partly or all(part == "**" for part in pattern)
    if not pattern:
        return False
    if pattern[0] == "**":
        return matches(parts, pattern[1:], partly) or matches(parts[1:], pattern, partly)
    return fnmatchcase(parts[0], pattern[0]) and matches(parts[1:], pattern[1:], partly)


def _entries(folder: Path | RemotePath) -> Iterator[str]:
    """Yield the names in a folder, those of sub-folders followed by /."""
    if isinstance(folder, RemotePath):
        yield from folder.entries()
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    yield f"{entry.name}/"
                elif entry.is_file():
                    yield entry.name
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed ({error.strerror})") from error


def _extension(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
