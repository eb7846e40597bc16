"""Peak memory and time of a call."""

import ctypes
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from wcl.system import machine

T = TypeVar("T")
_ENOUGH = 4.0  # seconds of computing


class Cost(NamedTuple):
    """Time and peak memory of a call."""

    seconds: float
    gigabytes: float


def in_new_process(call: Callable[..., T], *args: object) -> T:
    """Return what a call returns in a fresh process, set up like one that trains.

    Args:
        call: a module-level function. The process imports its module anew, so changes made to the
            module's globals are not seen; pass what varies as arguments.
        args: its arguments.
    """
    context = get_context("forkserver")
    modules = [each.__module__ for each in (call, *args) if callable(each)]
    context.set_forkserver_preload(modules)  # importing torch takes seconds
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_set_up_and_call, torch.get_num_threads(), call, *args).result()


def _set_up_and_call(threads: int, call: Callable[..., T], *args: object) -> T:
    machine.keep_freed_memory()
    machine.use_threads(threads)
    return call(*args)


def first_cost(call: Callable[..., object], *args: object) -> Cost:
    """Return what the first call in a process takes."""
    began = time.perf_counter()
    extra = extra_bytes(partial(call, *args))
    return Cost(time.perf_counter() - began, extra / 1e9)


def least_cost(rounds: int, prepare: Callable[..., Callable[[], float]], *args: object) -> Cost:
    """Return the time of the fastest of several calls, and the peak memory of the first.

    Args:
        rounds: calls after the first one, as long as all together take a few seconds.
        prepare: returns the call; its own time does not count, nor the memory that it holds. The
            call returns its seconds, which may be extrapolated.
        args: arguments of `prepare`.
    """
    call = prepare(*args)
    _release_freed_memory()
    began = time.process_time()
    seconds: list[float] = []
    extra = extra_bytes(lambda: seconds.append(call()))
    # The first call also pays for memory that the process has not used before.
    while len(seconds) <= rounds and time.process_time() - began < _ENOUGH:
        seconds.append(call())
    return Cost(min(seconds), extra / 1e9)


def cpu_seconds(call: Callable[..., object], *args: object) -> float:
    """Return the seconds that all threads of this process compute during a call.

    Other load on the machine hardly changes them, as it does elapsed time.
    """
    began = time.process_time()
    call(*args)
    return time.process_time() - began


def _release_freed_memory() -> None:
    """Return what was freed to the system, so that a call that uses it again is seen to do so."""
    if sys.platform.startswith("linux") and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


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
