"""Paths as users write them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from wcl.system.errors import InputError


def expanded(path: str | Path) -> Path:
    """Expand ~ in a path, if possible.

    Raises:
        InputError: no file can have that name, or it is not text that a run can record.
    """
    found = expanded_image(path)
    try:
        str(found).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{one_line(str(path))}: its name is not UTF-8 text; rename it, or give a link to it"
        ) from error
    return found


def expanded_image(path: str | Path) -> Path:
    """Expand ~ in the path of an image, which need not be UTF-8 text.

    Raises:
        InputError: no file can have that name.
    """
    found = Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for a strange ~
    try:
        found.lstat()
    except ValueError as error:
        raise InputError(f"{path!r}: cannot be a file name ({error})") from error
    except OSError as error:  # whether the file exists is checked elsewhere
        if error.errno == errno.ENAMETOOLONG:
            start = str(path)[:40]
            raise InputError(f"{start}…: too long for a file name") from error
    return found


def one_line(text: str) -> str:
    r"""Escape what cannot be printed on one line: file names may contain line ends.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, limit: float, length: Callable[[str], float] = len) -> str:
    """Shorten text to a limit by cutting its middle: names of files differ at both ends.

    >>> shortened("holidays/image_0042.jpg", 16)
    'holiday…0042.jpg'
    """
    if length(text) <= limit:
        return text
    sizes = range(len(text) - 1, 0, -1)
    fitting = (count for count in sizes if length(_both_ends(text, count)) <= limit)
    return _both_ends(text, next(fitting, 0))


def _both_ends(text: str, count: int) -> str:
    """Keep that many characters of the text, half from each end."""
    return f"{text[: count // 2]}…{text[len(text) - (count - count // 2) :]}"
