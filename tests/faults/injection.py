"""A fault at the n-th line of wcl that is run in some place: nothing in wcl knows of it."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGUSR1")
TWICE = "SIGINT twice"
KINDS = (*SIGNALS, TWICE, "exception")

_LINES_BETWEEN = 9  # one Ctrl-C and the next

_saving = {"save_checkpoint", "_SealingWriter.write", "_SealingWriter.finish"}
_saving |= {"checkpoint_status"}
_metrics_files = ("training/metrics_file.py", "training/monitor/monitor.py")
_metrics = {"MetricsFile.write", "Monitor.end_step", "Monitor.end_epoch", "drop_lines_after"}
_between = {"train.<locals>.save", "train.<locals>.save.<locals>.write"}
_between |= {"capture_state", "_check_finite"}
# Each is told a file of wcl and a function in it by its qualified name.
PLACES: dict[str, Callable[[str, str], bool]] = {
    "anywhere": lambda file, function: True,
    "checkpoint": lambda file, function: file == "training/checkpoint.py" and function in _saving,
    "search": lambda file, function: file.startswith("neighbors/"),
    "metrics": lambda file, function: file in _metrics_files and function in _metrics,
    "before the checkpoint": lambda file, function: (
        file in ("training/loop.py", "training/state.py") and function in _between
    ),
    "other files": lambda file, function: file in ("system/files.py", "apps/contact_sheet.py"),
}


class Injected(Exception):
    """Nobody expects it."""


@dataclass(frozen=True)
class Fault:
    """What happens, and at which line, from 1, of those that are run in a place."""

    kind: str
    place: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind},{self.place},{self.line}"

    @classmethod
    def of(cls, words: str) -> "Fault":
        kind, place, line = words.split(",")
        return cls(kind, place, int(line))


def arm(fault: Fault, said: Path) -> None:
    """Have it happen in this process, not in those that it forks; `said` is told where."""
    left, strikes = fault.line, 2 if fault.kind == TWICE else 1

    def at(frame: FrameType, places: frozenset[str]) -> None:
        nonlocal left, strikes
        left -= fault.place in places
        if left:
            return
        left, strikes = _LINES_BETWEEN, strikes - 1
        if not strikes:
            sys.settrace(None)
        said.write_text(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        if fault.kind == "exception":
            raise Injected
        os.kill(os.getpid(), getattr(signal, fault.kind.removesuffix(" twice")))

    _follow(at)


def count_lines(lines: Counter[str]) -> None:
    """Count the lines that this process runs in each place, from here on."""
    _follow(lambda frame, places: lines.update(places))


def _follow(at: Callable[[FrameType, frozenset[str]], None]) -> None:
    owner = os.getpid()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and os.getpid() == owner:
            at(frame, _places_of(frame.f_code))
        return line if sys.gettrace() is not None else None

    def entered(frame: FrameType, event: str, _: Any) -> Any:
        return line if _places_of(frame.f_code) else None

    sys.settrace(entered)


@cache
def _root() -> str:
    spec = find_spec("wcl")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent) + "/"


@cache
def _places_of(code: CodeType) -> frozenset[str]:
    if not code.co_filename.startswith(_root()):
        return frozenset()
    file = code.co_filename.removeprefix(_root())
    found = (name for name, belongs in PLACES.items() if belongs(file, code.co_qualname))
    return frozenset(found)
