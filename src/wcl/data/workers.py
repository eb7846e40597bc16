"""Processes that decode photos: tasks go to them, what they make of them comes back in order."""

import atexit
import errno
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Lock, active_children, parent_process
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from threading import Thread, current_thread, main_thread
from typing import Any, Generic, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from wcl.system import machine
from wcl.system.errors import WorkerLost
from wcl.system.signals import stop_signals

Task = TypeVar("Task")
Done = TypeVar("Done")
_SECONDS_TO_DIE = 5  # one whose disk does not answer may not even be killed
_SECONDS_ALONE = 1  # that a process may outlive its parent
_SHARED_MEMORY, _ENOUGH_SHARED = "/dev/shm", 2**31


class Workers(Generic[Task, Done]):
    """Processes that are started when they are first needed, watched, and killed when one is lost.

    Args:
        name: of the source, for messages.
        work: what is done with a task: `work[task]`.
        count: processes; 0 to do the work in this one.
        ahead: tasks that each may do before they are wanted.
        wait: minutes after which a process that does not answer is given up.
    """

    def __init__(
        self,
        name: str,
        work: Dataset[Done],
        count: int,
        ahead: int = 2,
        timeout_minutes: float = 30,
    ) -> None:
        self.name = name
        self._wait = timeout_minutes
        self._tasks: list[Task] = []
        self._processes: list[BaseProcess] = []
        self._loader: DataLoader[Done] = DataLoader(
            work,
            batch_size=None,
            sampler=self._tasks,
            num_workers=count,
            prefetch_factor=ahead if count else None,
            persistent_workers=count > 0,
            timeout=60 * timeout_minutes if count else 0,
            worker_init_fn=_prepare_worker,
            generator=torch.Generator(),  # or it would draw from the one that dropout uses
        )

    def done(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """The result of each task; those of the tasks given before are not wanted any more.

        Raises:
            WorkerLost: a process died or did not answer.
        """
        self._tasks[:] = tasks
        with self._watched():
            results = self._begin()
        for _ in tasks:
            with self._watched():
                result = next(results)
            yield result

    def stop(self) -> None:
        """End the processes, whatever they are doing."""
        _kill(self._processes)

    def _begin(self) -> Iterator[Done]:
        """Have the processes begin with the tasks, and before that have processes."""
        if self._processes:
            return iter(self._loader)
        # torch asks them to end; one that hangs would keep this process from ending too.
        atexit.register(_kill, self._processes)
        _try_locks(self._loader.num_workers)
        others = set(active_children())
        try:
            return iter(self._loader)
        finally:
            self._processes += set(active_children()) - others

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Raise WorkerLost if a process dies or does not answer while it is waited for.

        A signal tells of a death. torch would raise an error for it wherever the process is at that
        moment, in the middle of a checkpoint too; its handler is set aside when the wait is over.
        """

        def all_live() -> bool:
            return all(process.is_alive() for process in self._processes)

        def look(*_: object) -> None:
            if not all_live():
                raise RuntimeError

        def look_away() -> None:
            if told:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)

        # Only the main thread handles signals; Windows has none for this, where torch polls.
        told = current_thread() is main_thread() and hasattr(signal, "SIGCHLD")
        before = signal.signal(signal.SIGCHLD, look) if told else None
        try:
            look()
            yield
        except (RuntimeError, OSError, EOFError) as error:
            look_away()
            if isinstance(error, OSError | EOFError):  # its death may be a moment behind
                for process in self._processes:
                    process.join(1)
            reason = f"failed ({error})"
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                reason = "cannot be started, /dev/shm is full: try fewer --num_workers, or 0"
            elif not all_live():
                reason = "died, perhaps for want of memory: try fewer --num_workers"
            elif str(error).startswith("DataLoader timed out"):
                reason = f"did not answer within {self._wait:g} minutes: look to the disk"
            self.stop()
            raise WorkerLost(f"{self.name}: a process that decodes photos {reason}") from error
        except BaseException:
            look_away()
            self.stop()
            raise
        finally:
            if told:
                signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def worker_count(wanted: int) -> int:
    """That many processes, or with -1 one for each core but one, at most 8."""
    if wanted >= 0:
        return wanted
    return max(1, min(8, machine.cores() - 1))


def _try_locks(processes: int) -> None:
    """Raise OSError if /dev/shm has no room for the locks of so many; torch would do it untidily.

    It uses 8, and 3 for each process.
    """
    locks = [Lock() for _ in range(8 + 3 * processes if processes else 0)]
    locks.clear()  # there is room again


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()
        process.join(_SECONDS_TO_DIE)


def _prepare_worker(worker: int) -> None:
    # Such signals may reach the whole group of processes; the parent alone decides to stop.
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    if _shared_memory_is_scarce():
        ForkingPickler.register(Tensor, _as_array)
    Thread(target=_end_with_the_parent, daemon=True).start()


def _shared_memory_is_scarce() -> bool:
    """Whether to send tensors through the pipe, as it is in most containers.

    torch uses shared memory, and loses without a word what finds no room in it. A pipe costs the
    process that trains 0.3 ms for two views of 224 pixels: much, if a GPU waits for them.
    """
    try:
        return shutil.disk_usage(_SHARED_MEMORY).free < _ENOUGH_SHARED
    except OSError:  # not of this system
        return False


def _end_with_the_parent() -> None:
    """A worker that has more to send than a pipe holds would wait for ever for a killed parent."""
    parent = parent_process()
    # A forked process changes its parent, and holds its end of the pipe that `is_alive` looks at;
    # on Windows the number of the parent stays.
    while parent is not None and os.getppid() == parent.pid and parent.is_alive():
        time.sleep(_SECONDS_ALONE)
    os._exit(1)


def _as_array(tensor: Tensor) -> Any:
    return _as_tensor, (tensor.numpy(),)


def _as_tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(array)
