"""The machine: devices, cores, threads and memory."""

import ctypes
import ctypes.util
import mmap
import os
import sys
from pathlib import Path

import torch

from wcl.system.errors import InputError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP = 2**30
_MAX_THREADS = 4096
MAX_WORKERS = 1024


def keep_freed_memory() -> None:
    """Make glibc keep the blocks that tensors free instead of returning them to the system.

    A training step frees and allocates hundreds of megabytes. By default large blocks go back to
    the kernel each time, and every page is mapped and zeroed again at its next use. Measured
    on two cores with a small ResNet at batch 256: 671 → 936 views per second.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    if hasattr(libc, "mallopt"):  # glibc, not musl
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_threads(threads: int) -> None:
    """Limit torch to this many CPU threads; 0 changes nothing.

    Raises:
        InputError: the number is out of range.
    """
    if not 0 <= threads <= _MAX_THREADS:
        raise InputError(f"--threads: must be between 0 and {_MAX_THREADS}, not {threads}")
    if threads > 0:
        torch.set_num_threads(threads)


def check_workers(num_workers: int) -> None:
    """Raise InputError if the number of processes that decode photos is out of range."""
    if not -1 <= num_workers <= MAX_WORKERS:
        raise InputError(f"--num_workers: must be between -1 and {MAX_WORKERS}, not {num_workers}")


def available_memory() -> int:
    """Return the bytes that this process can still allocate, within its container's limit."""
    if sys.platform == "win32":
        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX, which begins with its size
        ctypes.windll.kernel32.GlobalMemoryStatusEx(status)
        return int(status[2])  # ullAvailPhys
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # macOS
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="utf-8"))
        used = dict(
            line.split()
            for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines()
        )
        return min(available, limit - int(used["anon"]))
    except (OSError, ValueError, KeyError):  # no limit
        return available


def resident_memory() -> int:
    """Return the bytes of memory that this process uses; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * mmap.PAGESIZE
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS, in bytes


def best_device(name: str) -> str:
    """Return the device of that name, or for `auto` the best available one."""
    is_available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next((device for device, found in is_available.items() if found), "cpu")
    if name != "cpu" and not is_available.get(name, False):
        raise InputError(f"--device: {name} is not available; use auto or cpu")
    return name


def device_name(device: torch.device) -> str:
    """Return the model of a GPU; for other devices their type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
