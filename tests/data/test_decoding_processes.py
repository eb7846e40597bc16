"""Processes that decode photos: how their results come back, and where there is no room."""

import errno
import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from wcl.data import workers
from wcl.data.workers import Workers
from wcl.system.errors import WorkerLost


class Squares(Dataset[Tensor]):
    """A million times the square of the task."""

    def __getitem__(self, task: int) -> Tensor:
        return torch.full((1000, 1000), task**2)


@pytest.mark.parametrize(
    ("count", "enough", "shared"), [(0, 0, False), (2, 0, True), (2, 2**60, False)]
)
def test_results_come_in_order_and_through_shared_memory_only_if_there_is_enough(
    count: int, enough: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_MIN_SHARED_MEMORY", enough)
    squares: Workers[int, Tensor] = Workers("some", Squares(), count)
    for tasks in ([3, 1, 2], [5, 4]):
        results = list(squares.done(tasks))
        assert [int(result[0, 0]) for result in results] == [task**2 for task in tasks]
        assert [result.is_shared() for result in results] == [shared] * len(tasks)
        results[0].add_(1)  # may be changed as any other
    squares.stop()
    assert not active_children()


def test_loaders_of_the_program_hear_nothing_of_processes_that_are_killed() -> None:
    """A subprocess, because torch installs its handler of SIGCHLD once and for all."""
    program = """
import signal, subprocess, sys
import torch
from torch.utils.data import DataLoader
from wcl.data.workers import Workers

numbers = torch.arange(8)
of_program = DataLoader(numbers, num_workers=1, persistent_workers=True)
assert len(list(of_program)) == 8
handler = signal.getsignal(signal.SIGCHLD)
workers = Workers("some", numbers, 2)
assert [int(number) for number in workers.done([3, 1])] == [3, 1]
workers.stop()
subprocess.run([sys.executable, "-c", ""], check=True)  # another SIGCHLD
assert len(list(of_program)) == 8
assert signal.getsignal(signal.SIGCHLD) == handler != signal.SIG_DFL
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("enough", [0, 2**60], ids=["shared memory", "pipe"])
def test_a_process_that_stops_while_it_sends_a_result_is_given_up(
    enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_MIN_SHARED_MEMORY", enough)
    squares: Workers[int, Tensor] = Workers("some", Squares(), 1, timeout_minutes=0.05)
    results = squares.done(range(9))
    next(results)
    (process,) = active_children()
    time.sleep(1)  # until the next result waits for the pipe, or for its shared memory to be opened
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost, match=r"some: .*did not answer within 0.05 minutes"):
        list(results)
    assert not active_children()


def test_no_room_for_the_processes_locks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(loader: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(DataLoader, "__iter__", start)
        with pytest.raises(WorkerLost, match=r"some: .*/dev/shm is full; try fewer --num_workers"):
            list(Workers[int, Tensor]("some", Squares(), 1).done([1]))
    assert [
        int(result[0, 0]) for result in Workers[int, Tensor]("some", Squares(), 0).done([3])
    ] == [9]
