"""The file that a command is to write: a fit name, and never one that exists already."""

from itertools import count
from pathlib import Path

from wcl.errors import InputError
from wcl.paths import expanded


def new_file(out: str, suffixes: tuple[str, ...]) -> Path:
    """What the user wrote after `--out`, as a file that can be written.

    Raises:
        InputError: it exists, is not of these kinds, or its folder does not exist.
    """
    path = expanded(out)
    if path.suffix.lower() not in suffixes or not path.parent.is_dir():
        kinds = " or ".join(suffixes)
        raise InputError(f"--out: {out or 'empty'} must be a {kinds} file in a folder that exists")
    if path.exists():
        raise InputError(f"{out}: exists already; choose another --out")
    return path


def free_name(name: str) -> Path:
    """That name in the current folder, or the first of name-2, name-3, … that is not taken."""
    path = Path(name)
    names = (path if n == 1 else path.with_stem(f"{path.stem}-{n}") for n in count(1))
    return next(candidate for candidate in names if not candidate.exists())
