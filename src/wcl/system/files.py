"""Writing files: never over an existing one unless asked, and completely or not at all."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from uuid import uuid4

from wcl.system.errors import InputError
from wcl.system.paths import expanded

_UNFINISHED = ".wcl-*.tmp"
_ABANDONED_AFTER = 3600  # seconds since the last write


def new_file(out: str, suffixes: tuple[str, ...]) -> Path:
    """Return the path of a file to write, given by `--out`.

    Raises:
        InputError: it exists, has another suffix, or its folder does not exist.
    """
    path = expanded(out)
    if path.suffix.lower() not in suffixes or not path.parent.is_dir():
        kinds = " or ".join(suffixes)
        raise InputError(f"--out: {out or 'empty'} must be a {kinds} file in a folder that exists")
    must_be_new(path)
    return path


def must_be_new(path: Path, setting: str = "--out") -> None:
    """Raise InputError, which names the setting to change, if the path exists."""
    if path.is_symlink() and not path.exists():  # perhaps into a disk that is not mounted
        raise InputError(f"{path}: a broken link; choose another {setting}")
    if path.exists():
        raise InputError(f"{path}: exists already; choose another {setting}")


def holds_files(folder: Path) -> bool:
    """Return whether a folder holds anything but unfinished files of `atomic_write`."""
    return any(not fnmatch(path.name, _UNFINISHED) for path in folder.iterdir())


def clear_unfinished(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed."""
    for path in folder.glob(_UNFINISHED):
        with suppress(OSError):  # another process may have removed it
            if time.time() - path.stat().st_mtime > _ABANDONED_AFTER:
                path.unlink()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` at the end.

    If anything fails, such as a full disk, the temporary file is removed and `path` is unchanged.
    After a power cut `path` holds either the old or the new contents.

    Raises:
        OSError: it cannot be written; the error names `path`.
    """
    # Shorter than most names, so that it fits where the name itself fits.
    unfinished = path.with_name(_UNFINISHED.replace("*", uuid4().hex))
    try:
        with errors_naming(path, unfinished):
            yield unfinished
            fsync(unfinished)
            unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()  # exists only if something failed


@contextmanager
def errors_naming(path: Path, unfinished: Path) -> Iterator[None]:
    """Make errors about an unfinished file name the path that it is meant for.

    Errors that name no file, such as that of a full disk, name it too; errors about other files
    are unchanged.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        if isinstance(name, str | os.PathLike) and not Path(name).is_relative_to(unfinished):
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, reason, str(path)) from error


def fsync(path: Path) -> None:
    """Make the contents of a file, or the names in a folder, survive a power cut."""
    is_folder = path.is_dir()
    try:
        opened = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    except PermissionError:
        if is_folder:  # Windows cannot open folders
            return
        raise
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def free_name(name: str) -> Path:
    """Return the name, or the first of name-2, name-3, … that does not exist in this folder."""
    path = Path(name)
    names = (path if n == 1 else path.with_stem(f"{path.stem}-{n}") for n in count(1))
    return next(path for path in names if not (path.exists() or path.is_symlink()))
