"""Messages and progress on standard error.

Progress is a bar in a terminal, and an occasional line in a file or a pipe, such as the log of a
batch job.
"""

import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
_BAR_DELAY = 1.0  # seconds before a bar is shown
_FIRST_LINE, _BETWEEN_LINES = 2.0, 30.0  # seconds


@cache  # one for all, so that bars and lines do not overwrite each other
def console() -> Console:
    """Return the console for messages; standard output is reserved for results."""
    return Console(stderr=True, highlight=False)


_reported: ContextVar[set[str] | None] = ContextVar("_reported", default=None)


def log(text: str) -> None:
    """Print a line as it is: brackets in file names are not markup."""
    reported = _reported.get()
    if reported is None or text not in reported:
        console().print(text, markup=False, soft_wrap=True)
    if reported is not None:
        reported.add(text)


@contextmanager
def without_repeats() -> Iterator[None]:
    """Print each message once, for a task whose parts report the same about the data."""
    reported = _reported.get()
    token = _reported.set(set() if reported is None else reported)
    try:
        yield
    finally:
        _reported.reset(token)


def track(items: Iterable[T], doing: str, total: int | None = None) -> Iterator[T]:
    """Yield the items and show the progress once it takes more than a moment."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if console().is_interactive:
        return _with_bar(items, doing, total)
    return _with_lines(items, doing, total)


def _with_bar(items: Iterable[T], doing: str, total: int | None) -> Iterator[T]:
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console(),
        transient=True,
    )
    task = bar.add_task(doing, total=total)
    began, shown = time.monotonic(), False
    try:
        for done, item in enumerate(items):
            yield item
            if not shown and time.monotonic() - began > _BAR_DELAY:
                bar.start()
                shown = True
            bar.update(task, completed=done + 1)
    finally:
        if shown:
            bar.stop()


def _with_lines(items: Iterable[T], doing: str, total: int | None) -> Iterator[T]:
    began = time.monotonic()
    due = began + _FIRST_LINE
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now >= due and done != total:
            due = now + _BETWEEN_LINES
            console().print(_line(doing, done, total, now - began), markup=False, soft_wrap=True)


def _line(doing: str, done: int, total: int | None, seconds: float) -> str:
    """Format the progress of a task.

    >>> _line("computing features", 50, 200, 60.0)
    'computing features: 25%, about 3 minutes left'
    """
    if not total:
        return f"{doing}: {done:,} so far"
    left = seconds * (total - done) / done
    time_left = f"{max(left, 2):.0f} seconds" if left < 100 else f"{left / 60:.0f} minutes"
    return f"{doing}: {done / total:.0%}, about {time_left} left"
