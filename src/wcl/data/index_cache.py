"""Cache of the indexes of large sources, in the user's cache folder.

A missing, damaged or unwritable cache file costs time and nothing else. All of them may be deleted
at any time. The files are NumPy's `.npz`, whose checksums reveal damage; Arrow's have none.
"""

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wcl.system.cache_folder import cache_folder
from wcl.system.errors import InputError
from wcl.system.files import atomic_write

T = TypeVar("T")
MIN_IMAGES = 10_000
"""Indexes of smaller sources are not cached."""
_FORMAT = b"2"
_SETTLED = 10 * 10**9
Stamp = tuple[int, int, int, int]
UNSETTLED: Stamp = (0, 0, 0, 0)
"""A stamp that no file has."""


def stamp(status: os.stat_result, now: int | None = None) -> Stamp:
    """Return what changes when a file or folder does: inode, size, times of change.

    Args:
        status: taken before the file or folder is read.
        now: the current time in nanoseconds, for a stamp that is to be cached. A file that has
            just changed may change again within the same tick of the clock, so it gets
            `UNSETTLED`; so does every file on a file system without times.
    """
    if now is not None:
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        if status.st_mtime_ns <= 0 or changed > now - _SETTLED:
            return UNSETTLED
    inode = status.st_ino & (2**63 - 1)  # within a signed 64-bit integer
    return inode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def load(kind: str, key: bytes, read: Callable[[dict[str, Any]], T]) -> T | None:
    """Return `read(arrays)` of the arrays that are cached under a key; None if that fails."""
    try:
        with np.load(_file(kind, key), allow_pickle=False) as arrays:
            return read(dict(arrays))
    except Exception:  # a damaged file fails in a dozen ways, none of which matters
        return None


def save(kind: str, key: bytes, arrays: dict[str, Any]) -> None:
    """Cache arrays under a key, if possible."""
    with suppress(OSError, InputError):  # a full disk, no permission, no home folder
        file = _file(kind, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as unfinished, unfinished.open("xb") as out:
            np.savez(out, **arrays)


def as_array(text: bytes) -> Any:
    """Return bytes as an array that can be cached."""
    return np.frombuffer(text, dtype=np.uint8)


def now() -> int:
    """Return the current time in nanoseconds."""
    return time.time_ns()


def _file(kind: str, key: bytes) -> Path:
    name = hashlib.sha256(_FORMAT + b"\0" + key).hexdigest()[:32]
    return cache_folder() / "index" / f"{kind}-{name}.npz"
