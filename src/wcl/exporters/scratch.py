"""A folder for what is unfinished, which is gone in the end, even if its process is killed."""

import fcntl
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from wcl.system.files import errors_naming

_LOCK, _NEW = "lock", "new"
_SURELY_DEAD = 3600  # seconds without a lock, which is there at once


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new folder there, for as long as it is needed; what killed processes left goes first.

    The lock of a folder ends with the process that made it, on whatever machine that is: so a
    folder whose lock is free is nobody's any more.

    Raises:
        OSError: no folder can be made there.
    """
    for left in parent.glob(".export-*"):
        if re.fullmatch(r"\.export-[0-9a-f]{32}", left.name):
            _remove_if_dead(left)
    folder = parent / f".export-{uuid4().hex}"
    with errors_naming(parent, folder):
        folder.mkdir()
    try:
        with (folder / _NEW).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / _NEW).rename(folder / _LOCK)  # under that name it was never free
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_dead(folder: Path) -> None:
    """Remove a folder that `scratch_folder` made, if its process has ended."""
    if _was_never_locked(folder):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError), (folder / _LOCK).open("r+") as lock:  # or it is no such folder
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)


def _was_never_locked(folder: Path) -> bool:
    """Whether its process was killed in the moment before it had the lock."""
    try:
        old = time.time() - folder.lstat().st_mtime > _SURELY_DEAD
        return old and all(
            path.name == _NEW and path.is_file() and path.stat().st_size == 0
            for path in folder.iterdir()
        )
    except OSError:
        return False
