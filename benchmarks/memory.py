"""Peak memory of a call."""

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from wcl.system import machine


def in_new_process(call: Callable[..., object], *args: object) -> tuple[float, float]:
    """Return the gigabytes and seconds that a call takes in a fresh process.

    Args:
        call: a module-level function. The process imports its module anew, so changes made to the
            module's globals are not seen; pass what varies as arguments.
        args: its arguments.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([call.__module__])  # importing torch takes seconds
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_measure, torch.get_num_threads(), call, *args).result()


def _measure(threads: int, call: Callable[..., object], *args: object) -> tuple[float, float]:
    machine.keep_freed_memory()
    machine.use_threads(threads)
    began = time.perf_counter()
    extra = extra_bytes(partial(call, *args))
    return extra / 1e9, time.perf_counter() - began


def extra_bytes(call: Callable[[], object]) -> float:
    """Return the peak memory of a call above the current usage; NaN except on Linux."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the recorded peak
    except OSError:
        return math.nan
    before = _memory("VmRSS")
    call()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(name))
    return int(line.split()[1]) * 1024
