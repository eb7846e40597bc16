"""Files and folders in object storage and behind URLs, read through fsspec."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from wcl.data.decode import UnreadableImage
from wcl.system.credentials import without_credentials
from wcl.system.errors import InputError, RunError, did_you_mean
from wcl.system.paths import one_line

_VERSIONS = [
    "ETag",
    "etag",
    "Last-Modified",
    "LastModified",
    "last_modified",
    "mtime",
    "updated",
    "created",
]
"""Names of what changes with a file, in the file systems of fsspec."""


class RemotePath:
    """A file or folder of an fsspec file system.

    It holds no connection, so that processes can share it: each opens its own.

    Args:
        url: of a folder or file, as the user gave it.
        below: path below that folder, as text: for HTTP it is percent-encoded when it is used.
    """

    def __init__(self, url: str, below: str = "") -> None:
        self._url = url
        self._below = below

    def __truediv__(self, below: str) -> "RemotePath":
        return RemotePath(self._url, f"{self._below}/{below}".strip("/"))

    def __str__(self) -> str:
        """Return the URL without credentials."""
        head, tail = split_url(without_credentials(self._url))
        below = _encoded(self._below) if is_http(head) else self._below
        start = head if head.endswith("://") else head.rstrip("/")
        joint = "/" if below and not start.endswith("/") else ""
        return f"{start}{joint}{below}{tail}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return (self._below or split_url(self._url)[0].rstrip("/")).rpartition("/")[2]

    @property
    def file_system(self) -> Any:
        return _file_system(self._url, os.getpid())[0]

    @property
    def path(self) -> str:
        """The path in the file system."""
        root = _file_system(self._url, os.getpid())[1]
        if not self._below:
            return root
        if is_http(root):
            address, mark, query = root.partition("?")
            return f"{address.rstrip('/')}/{_encoded(self._below)}{mark}{query}"
        return f"{root.rstrip('/')}/{self._below}" if root else self._below

    def is_dir(self) -> bool:
        return bool(self.file_system.isdir(self.path))

    def entries(self) -> Iterator[str]:
        """Yield the names in this folder, those of sub-folders followed by /."""
        path = self.path
        start = f"{path.strip('/')}/".lstrip("/")
        for entry in self.file_system.ls(path, detail=True):
            found = str(entry["name"]).lstrip("/")
            if not found.startswith(start):  # a page may link to anywhere
                continue
            name = found.removeprefix(start).rstrip("/")
            name = unquote(name, errors="surrogateescape") if is_http(path) else name
            if name and "\0" not in name:
                yield f"{name}/" if entry["type"] == "directory" else name

    def content(self) -> bytes:
        """Return the bytes of an image.

        Raises:
            UnreadableImage: it cannot be read.
        """
        try:
            return bytes(self.file_system.cat_file(self.path))
        except FileNotFoundError as error:
            raise UnreadableImage("no such file") from error
        except Exception as error:  # each file system has its own, and none may end a run
            raise UnreadableImage(reason(error)) from error

    def open(self, mode: str = "rb") -> Any:
        """Open the file for reading at any place."""
        return self.file_system.open(self.path, mode)

    def stamp(self, time: bool) -> str:
        """Return the file's size, and if wanted what else changes with it; "gone" without one."""
        try:
            info = self.file_system.info(self.path)
        except Exception:
            return "gone"
        version = next((info[name] for name in _VERSIONS if info.get(name)), "") if time else ""
        return f"{info.get('size')} {version} "


def is_url(spec: str) -> bool:
    """Return whether fsspec opens this source: s3://bucket/folder, simplecache::https://host/."""
    return "://" in spec


def is_http(url: str) -> bool:
    """Return whether HTTP is the first protocol with a path in a URL."""
    return url.partition("://")[0].rpartition(":")[2] in ("http", "https")


def split_url(url: str) -> tuple[str, str]:
    """Return a URL up to the end of its path, and the rest: a query, or what the path is inside of.

    >>> split_url("zip://train::s3://bucket/photos.zip")
    ('zip://train', '::s3://bucket/photos.zip')
    """
    start = url.find("://") + 3
    marks = ("::", "?") if is_http(url) else ("::",)
    end = min((at for mark in marks if (at := url.find(mark, start)) >= 0), default=len(url))
    return url[:end], url[end:]


def arrow_file(path: Path | RemotePath) -> Any:
    """Return what pyarrow reads: the path of a local file, or an open remote one."""
    return path.open() if isinstance(path, RemotePath) else path


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn whatever a file system raises while a source is opened into one line with a remedy."""
    try:
        yield
    except (InputError, RunError):
        raise
    except Exception as error:  # each file system has its own
        raise InputError(f"{one_line(without_credentials(url))}: {_problem(url, error)}") from error


def reason(error: Exception) -> str:
    """Return the first line of an error's message, without credentials."""
    lines = str(error).splitlines() or [type(error).__name__]
    return without_credentials(lines[0])


def _problem(url: str, error: Exception) -> str:
    from fsspec import available_protocols
    from fsspec.registry import known_implementations

    words = [word for part in url.split("::") if (word := part.partition("://")[0]).isalnum()]
    for word in words:
        if word not in available_protocols():
            return f"unknown protocol {word}{did_you_mean(word, available_protocols())}"
    if isinstance(error, ImportError):
        modules = [known_implementations[word]["class"].partition(".")[0] for word in words]
        missing = next((name for name in modules if find_spec(name) is None), "")
        return f"needs the package {missing}; pip install {missing}" if missing else reason(error)
    if isinstance(error, FileNotFoundError):
        return "no such folder or file; check the name"
    return f"cannot be read ({reason(error)}); check the address, the network and your credentials"


@lru_cache(maxsize=16)
def _file_system(url: str, process: int) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it; a forked process must open its own."""
    from fsspec.core import url_to_fs

    file_system, path = url_to_fs(url)
    return file_system, str(path)


def _encoded(path: str) -> str:
    return quote(path, errors="surrogateescape")
