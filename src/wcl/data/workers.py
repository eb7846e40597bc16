"""Worker processes that decode photos, and return the results in the order of the tasks."""

import atexit
import errno
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children, parent_process
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from threading import Event, Thread, Timer, current_thread, main_thread
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
_KILL_TIMEOUT = 5  # seconds; a process that waits for its disk may not end even if killed
_PARENT_POLL = 1  # seconds
_SHARED_MEMORY, _MIN_SHARED_MEMORY = "/dev/shm", 2**31


class Workers(Generic[Task, Done]):
    """Processes that are started on first use, watched, and killed if one of them is lost.

    Args:
        name: of the source, for messages.
        work: maps a task to its result: `work[task]`.
        count: processes; 0 to work in this one.
        ahead: tasks that each process may finish in advance.
        timeout_minutes: time after which a process that does not answer is given up.
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
        self._timeout_minutes = timeout_minutes
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
            generator=torch.Generator(),  # otherwise it draws from the one that dropout uses
        )

    def done(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield the result of each task; results of earlier tasks are dropped.

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
        """Kill the processes.

        If the program has loaders of its own, torch's handler of SIGCHLD is in place, and would
        report these deaths to it. So it is out of place meanwhile, and torch forgets the processes.
        """
        has_signal = current_thread() is main_thread() and hasattr(signal, "SIGCHLD")
        before = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if has_signal else None
        try:
            _kill(self._processes)
            iterator: Any = self._loader._iterator
            if iterator is not None:
                iterator._shutdown_workers()
        finally:
            if has_signal:
                signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)

    def _begin(self) -> Iterator[Done]:
        """Start the processes if necessary, and the tasks."""
        if self._processes:
            return iter(self._loader)
        # torch waits for them to end; one that hangs would keep this process from ending.
        atexit.register(_kill, self._processes)
        others = set(active_children())
        try:
            return iter(self._loader)
        finally:
            self._processes += set(active_children()) - others

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Raise WorkerLost if a process dies or does not answer during the `with` statement.

        SIGCHLD reports a death. torch's handler would raise an error at any moment, even while a
        checkpoint is written; so ours replaces it, and only here. A timer sends the same signal,
        because torch's timeout does not end the wait for the rest of a result that has begun.
        """
        expired = Event()

        def all_alive() -> bool:
            return all(process.is_alive() for process in self._processes)

        def check(*_: object) -> None:
            if expired.is_set() or not all_alive():
                raise RuntimeError

        def give_up() -> None:
            expired.set()
            signal.pthread_kill(main_thread().ident or 0, signal.SIGCHLD)

        def ignore_deaths() -> None:
            if has_signal:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)

        # Only the main thread handles signals. Windows has no SIGCHLD; there torch polls.
        has_signal = current_thread() is main_thread() and hasattr(signal, "SIGCHLD")
        before = signal.signal(signal.SIGCHLD, check) if has_signal else None
        timer = Timer(60 * self._timeout_minutes, give_up)
        timer.daemon = True
        try:
            check()
            if has_signal and self._processes:
                timer.start()
            yield
        except (RuntimeError, OSError, EOFError) as error:
            ignore_deaths()
            if isinstance(error, OSError | EOFError):  # the process may die a moment later
                for process in self._processes:
                    process.join(1)
            reason = f"failed ({error})"
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                reason = "cannot be started because /dev/shm is full; try fewer --num_workers, or 0"
            elif not all_alive():
                reason = "died, perhaps for lack of memory; try fewer --num_workers"
            elif expired.is_set() or str(error).startswith("DataLoader timed out"):
                reason = f"did not answer within {self._timeout_minutes:g} minutes; check the disk"
            self.stop()
            raise WorkerLost(f"{self.name}: a process that decodes photos {reason}") from error
        except BaseException:
            ignore_deaths()
            self.stop()
            raise
        finally:
            timer.cancel()
            if has_signal:
                signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def worker_count(wanted: int) -> int:
    """Return the number of processes: for -1 one for each core but one, at most 8."""
    if wanted >= 0:
        return wanted
    return max(1, min(8, machine.cores() - 1))


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()
        process.join(_KILL_TIMEOUT)


def _prepare_worker(worker: int) -> None:
    # These signals may reach the whole process group; only the parent decides to stop.
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    if _shared_memory_is_scarce():
        ForkingPickler.register(Tensor, _as_array)
    Thread(target=_end_with_the_parent, daemon=True).start()


def _shared_memory_is_scarce() -> bool:
    """Return whether tensors must go through a pipe, as in most containers.

    torch uses shared memory, and silently loses what does not fit. A pipe costs the training
    process 0.3 ms for two views of 224 pixels, which is much if a GPU waits for them.
    """
    try:
        return shutil.disk_usage(_SHARED_MEMORY).free < _MIN_SHARED_MEMORY
    except OSError:  # not Linux
        return False


def _end_with_the_parent() -> None:
    """End the worker when its parent has died: a full pipe would block it forever."""
    parent = parent_process()
    # A forked process gets another parent, but keeps open the pipe that `is_alive` looks at; on
    # Windows it is the other way round.
    while parent is not None and os.getppid() == parent.pid and parent.is_alive():
        time.sleep(_PARENT_POLL)
    os._exit(1)


def _as_array(tensor: Tensor) -> Any:
    return _as_tensor, (tensor.numpy(),)


def _as_tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(array)
