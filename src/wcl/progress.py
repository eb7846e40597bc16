"""Progress bars for people, on standard error, for anything that takes a while."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
_PATIENCE = 1.0  # seconds before a bar shows: what is over by then needs none


def console() -> Console:
    """Where words for people go; standard output is kept for results."""
    return Console(file=sys.stderr, highlight=False)


def track(items: Iterable[T], doing: str, total: int | None = None) -> Iterator[T]:
    """Pass items on, with a bar once it has taken more than a moment."""
    if total is None and isinstance(items, Sized):
        total = len(items)
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
