"""Indexes of large sources, kept in the user's cache folder so that opening them again is quick.

They are a convenience: one that is missing, damaged or cannot be written changes nothing but the
time it takes. All may be deleted at any time.
"""

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from wcl.system.files import atomic_write

T = TypeVar("T")
WORTH_KEEPING = 10_000
"""Images from which on a source has its index kept."""
_FORMAT = b"1"
_SETTLED = 10 * 10**9
Stamp = tuple[int, int, int, int]
UNSETTLED: Stamp = (0, 0, 0, 0)
"""A stamp that nothing has."""


def stamp(status: os.stat_result, now: int | None = None) -> Stamp:
    """What tells a file or folder from what it was before: inode, size, times of change.

    Args:
        status: looked up before the file or folder is read.
        now: the time of day in nanoseconds, for a stamp that is to be kept. What was changed only
            just now may change again within the same tick of the clock, so it gets a stamp that
            will not be recognized; so does what is on a file system that keeps no times.
    """
    if now is not None:
        changed = max(status.st_mtime_ns, status.st_ctime_ns)
        if status.st_mtime_ns <= 0 or changed > now - _SETTLED:
            return UNSETTLED
    inode = status.st_ino & (2**63 - 1)  # 64 bits with a sign hold it
    return inode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def load(kind: str, key: bytes, read: Callable[[dict[str, Any]], T]) -> T | None:
    """What `read` makes of the arrays that were kept under this key; None if it cannot."""
    try:
        with np.load(_file(kind, key), allow_pickle=False) as arrays:
            return read(dict(arrays))
    except Exception:  # a damaged file fails in a dozen ways, and none of them matters
        return None


def save(kind: str, key: bytes, arrays: dict[str, Any]) -> None:
    """Keep these arrays, if that is possible; whole or not at all."""
    with suppress(OSError, RuntimeError):  # a full disk, a folder of others, no home
        file = _file(kind, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as unfinished, unfinished.open("xb") as out:
            np.savez(out, **arrays)


def packed(text: bytes) -> Any:
    """Bytes as an array, to keep them."""
    return np.frombuffer(text, dtype=np.uint8)


def now() -> int:
    return time.time_ns()


def _file(kind: str, key: bytes) -> Path:
    wanted = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # Its specification has relative paths ignored.
    folder = wanted if wanted.is_absolute() else Path.home() / ".cache"
    name = hashlib.sha256(_FORMAT + b"\0" + key).hexdigest()[:32]
    return folder / "wcl" / "index" / f"{kind}-{name}.npz"
