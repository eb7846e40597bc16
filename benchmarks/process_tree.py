"""Peak memory of a process and all its descendants."""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import torch

from wcl.system import machine

_BETWEEN_SAMPLES = 0.02  # seconds


def peak_of_tree(call: Callable[..., object], *args: object) -> float:
    """Return the peak gigabytes of a new process that makes a call, with all its descendants.

    Pages that several processes share count once in total. The memory of imports is included. It
    is sampled, so a peak of a few milliseconds may be missed. NaN except on Linux.

    Args:
        call: a module-level function, which the process imports anew.
        args: its arguments.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # shares no pages with this one
        root = pool.submit(os.getpid).result()
        running = pool.submit(_with_threads, torch.get_num_threads(), call, *args)
        peak = 0.0
        while not wait([running], timeout=_BETWEEN_SAMPLES).done:
            peak = max(peak, sum(_proportional_bytes(process) for process in _tree(root)))
        running.result()
    return peak / 1e9 if peak else math.nan


def _with_threads(threads: int, call: Callable[..., object], *args: object) -> None:
    machine.use_threads(threads)
    call(*args)


def _tree(process: int) -> Iterator[int]:
    """Yield a process and all its descendants, as far as they still exist."""
    yield process
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text(encoding="utf-8").split():
                yield from _tree(int(child))


def _proportional_bytes(process: int) -> int:
    """Return the resident bytes of a process, its part of those that it shares; 0 if it ended."""
    with suppress(OSError):
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
        line = next((line for line in text.splitlines() if line.startswith("Pss:")), "Pss: 0 kB")
        return int(line.split()[1]) * 1024
    return 0
