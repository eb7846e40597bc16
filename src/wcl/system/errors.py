"""Errors that a user can cause, in words, and the nearest name to a mistyped one."""

import difflib
import errno
from collections.abc import Iterable

UNMAKEABLE = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""What PyYAML raises, besides its own errors, of values that cannot be: an impossible date, an
empty `!!int`, brackets in brackets."""


class InputError(ValueError):
    """Something given is wrong: one line that names it, and what to do. Exit status 2."""


class RunError(RuntimeError):
    """A run could not go on: one line that says why. Exit status 1."""


class NotFinite(RunError):
    """A loss or a gradient is not a finite number."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"step {step}: {what}")
        self.step = step


class WorkerLost(RunError):
    """A process that decodes photos died or did not answer."""


class ConnectionLost(RunError):
    """Another process of the run is gone, or does not answer."""


class ReportedByRankZero(Exception):
    """The run has failed, and another of its processes says why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
        """Exit status."""


def in_words(error: OSError) -> str:
    """What is wrong with a file or a disk, and what to do.

    >>> in_words(OSError(errno.ENOSPC, "No space left on device", "runs/a/report.html"))
    'runs/a/report.html: No space left on device; make room there and give the command again'
    """
    said = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "make room there and" if full else "when that is mended,"
    return f"{said}; {remedy} give the command again"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A half-sentence naming what was probably meant, or nothing.

    >>> did_you_mean("cifar-10", ["cifar10", "digits"])
    ' (did you mean cifar10?)'
    >>> did_you_mean("zebra", ["cifar10", "digits"])
    ''
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""
