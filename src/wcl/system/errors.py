"""Errors with a message for the user, and suggestions for mistyped names."""

import difflib
import errno
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_FLAG = re.compile(r"(?<![\w/.-])--([a-z]\w*(?:\.\w+)*)")


class InputError(ValueError):
    """A mistake in what the user gave: one line that names it and the remedy. Exit status 2."""


class RunError(RuntimeError):
    """A command failed: one line with the reason. Exit status 1."""


class NotFinite(RunError):
    """A loss or a gradient is not a finite number."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"step {step}: {what}")
        self.step = step


class WorkerLost(RunError):
    """A process that decodes photos died or did not answer."""


class ConnectionLost(RunError):
    """Another process of the run died or does not answer."""


class ReportedByRankZero(Exception):
    """The run failed, and rank 0 reports why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
        """Exit status."""


def describe_os_error(error: OSError) -> str:
    """Describe what is wrong with a file or a disk, and what to do.

    >>> describe_os_error(OSError(errno.ENOSPC, "No space left on device", "runs/a/report.html"))
    'runs/a/report.html: No space left on device; free some space, then run the command again'
    """
    problem = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{problem}; {'free some space' if is_full else 'fix this'}, then run the command again"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name closest to a mistyped one, or an empty string.

    >>> did_you_mean("cifar-10", ["cifar10", "digits"])
    ' (did you mean cifar10?)'
    >>> did_you_mean("zebra", ["cifar10", "digits"])
    ''
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def naming_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors name arguments of Python instead of flags.

    >>> @naming_arguments
    ... def pretrain(**changes):
    ...     raise InputError("--optim.lr: must be at most 10, not 20")
    >>> pretrain(optim__lr=20)
    Traceback (most recent call last):
    wcl.system.errors.InputError: optim__lr: must be at most 10, not 20

    The switch --resume becomes resume=True.
    """

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (InputError, RunError) as error:
            if len(error.args) == 1:
                error.args = (_FLAG.sub(_as_argument, str(error)),)
            raise

    return wrapped


def _as_argument(flag: re.Match[str]) -> str:
    return "resume=True" if flag[1] == "resume" else flag[1].replace(".", "__")
