"""Files that a command writes: never over one that exists already, and whole or not at all."""

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
_SURELY_DEAD = 3600  # seconds since anything was written


def new_file(out: str, suffixes: tuple[str, ...]) -> Path:
    """What the user wrote after `--out`, as a file that can be written.

    Raises:
        InputError: it exists, is not of these kinds, or its folder does not exist.
    """
    path = expanded(out)
    if path.suffix.lower() not in suffixes or not path.parent.is_dir():
        kinds = " or ".join(suffixes)
        raise InputError(f"--out: {out or 'empty'} must be a {kinds} file in a folder that exists")
    must_be_new(path)
    return path


def must_be_new(path: Path, setting: str = "--out") -> None:
    """Raise InputError, with the setting to change, if there is something at that path."""
    if path.is_symlink() and not path.exists():  # it might be meant for a disk that is not there
        raise InputError(f"{path}: a link that leads nowhere; choose another {setting}")
    if path.exists():
        raise InputError(f"{path}: exists already; choose another {setting}")


def holds_files(folder: Path) -> bool:
    """Whether there is anything in a folder but what `written_whole` could not finish."""
    return any(not fnmatch(path.name, _UNFINISHED) for path in folder.iterdir())


def clear_unfinished(folder: Path) -> None:
    """Remove what processes that were killed left of their writing there."""
    for path in folder.glob(_UNFINISHED):
        with suppress(OSError):  # somebody else may have been quicker
            if time.time() - path.stat().st_mtime > _SURELY_DEAD:
                path.unlink()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A name beside that path to write to: what is there at the end takes its place.

    If anything goes wrong, such as a full disk, what was written is removed, and what was at the
    path before is still there. After a power cut there is one or the other.

    Raises:
        OSError: it cannot be written; the error names the path.
    """
    # It fits where the path's own name fits.
    unfinished = path.with_name(_UNFINISHED.replace("*", uuid4().hex))
    try:
        with errors_naming(path, unfinished):
            yield unfinished
            fsync(unfinished)
            unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()  # is there only if something failed


@contextmanager
def errors_naming(path: Path, unfinished: Path) -> Iterator[None]:
    """Have errors of the disk name that path.

    A full disk names no file at all, and what is unfinished has a name that means nothing to
    anybody. Errors that name another file stay as they are.
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
    """That name in the current folder, or the first of name-2, name-3, … that is not taken."""
    path = Path(name)
    names = (path if n == 1 else path.with_stem(f"{path.stem}-{n}") for n in count(1))
    return next(path for path in names if not (path.exists() or path.is_symlink()))
