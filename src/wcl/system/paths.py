"""Paths as people write them."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from wcl.system.errors import InputError


def expanded(path: str | Path) -> Path:
    """The path with ~ for the home folder resolved, where it can be.

    Raises:
        InputError: no file can have that name, or it cannot be written down in a run's files.
    """
    found = expanded_image(path)
    try:
        str(found).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{one_line(str(path))}: a name that is not UTF-8 text; give it another, or make a "
            "link to it that has one"
        ) from error
    return found


def expanded_image(path: str | Path) -> Path:
    """The same for one image, which may have any name: those in a folder of images have such too.

    Raises:
        InputError: no file can have that name.
    """
    found = Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for a strange ~
    try:
        found.lstat()
    except ValueError as error:
        raise InputError(f"{path!r}: cannot be the name of a file ({error})") from error
    except OSError as error:  # whether there is such a file, others ask
        if error.errno == errno.ENAMETOOLONG:
            start = str(path)[:40]
            raise InputError(f"{start}…: too long for the name of a file") from error
    return found


def one_line(text: str) -> str:
    r"""Text on one line: the name of a file may have line ends and worse in it.

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
