"""Progress for people, on standard error, for anything that takes a while.

In a terminal it is a bar; in a file or a pipe, such as the log of a batch job, a line now and then.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
_PATIENCE = 1.0  # seconds before a bar shows: what is over by then needs none
_FIRST_LINE, _BETWEEN_LINES = 2.0, 30.0  # seconds


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Speak to nobody when whoever read it has gone: work of days does not end for that."""
        with Path(os.devnull).open("w") as nobody:
            os.dup2(nobody.fileno(), self.file.fileno())

    def _check_buffer(self) -> None:
        """A terminal that is gone is like a broken pipe, for which alone rich has a word."""
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.on_broken_pipe()


@cache  # one for all, so that a bar knows of what else is printed, and of a bar within it
def console() -> Console:
    """Where words for people go; standard output is kept for results."""
    return _Console(stderr=True, highlight=False)


_said: ContextVar[set[str] | None] = ContextVar("_said", default=None)


def say(text: str) -> None:
    """Print a line as it is: brackets in the names of files are no markup."""
    said = _said.get()
    if said is None or text not in said:
        console().print(text, markup=False, soft_wrap=True)
    if said is not None:
        said.add(text)


@contextmanager
def nothing_said_twice() -> Iterator[None]:
    """For a task of many parts, which all have the same to say about the data."""
    said = _said.get()
    before = _said.set(set() if said is None else said)
    try:
        yield
    finally:
        _said.reset(before)


def track(items: Iterable[T], doing: str, total: int | None = None) -> Iterator[T]:
    """Pass items on, with a bar or lines once it has taken more than a moment."""
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
            if not shown and time.monotonic() - began > _PATIENCE:
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
    """How far it is, in words.

    >>> _line("computing features", 50, 200, 60.0)
    'computing features: 25%, about 3 minutes left'
    """
    if not total:
        return f"{doing}: {done:,} so far"
    left = seconds * (total - done) / done
    time_left = f"{max(left, 2):.0f} seconds" if left < 100 else f"{left / 60:.0f} minutes"
    return f"{doing}: {done / total:.0%}, about {time_left} left"
