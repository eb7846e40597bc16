"""The process group of a run and its collectives.

All processes must make the same calls in the same order. With a single process every collective
returns its input, so callers need no special case.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from wcl.system.errors import InputError, ReportedByRankZero, RunError

T = TypeVar("T")
# Names as of torch 2.13, where the older ones still work but warn at every call.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class World:
    """The processes of a run, seen from one of them.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
        local_size: number of processes on this machine; None for all.
    """

    def __init__(self, rank: int = 0, size: int = 1, local_size: int | None = None) -> None:
        self.rank = rank
        self.size = size
        self.local_size = local_size or size
        """Number of processes that share this machine's memory and disks."""

    @classmethod
    def current(cls) -> "World":
        """Return the processes of the current process group; one process if there is none."""
        if not dist.is_initialized():
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def all_gather(self, rows: Tensor) -> Tensor:
        """Concatenate (n, …) of every process → (size·n, …), in the order of the ranks.

        Differentiable: the gradient of a row is the sum of its gradients on all processes.
        """
        if self.size == 1:
            return rows
        gathered: Tensor = _AllGather.apply(rows, self.size)  # type: ignore[no-untyped-call]
        return gathered

    def all_to_all(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send the first `sent[0]` rows to process 0, the next `sent[1]` to process 1 and so on.

        Args:
            rows: (sum of sent, …).
            sent: number of rows for each process.
            received: number of rows from each process.

        Returns:
            (sum of received, …) in the order of the ranks, without gradient.
        """
        if self.size == 1:
            return rows
        arrived = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(arrived, rows.detach().contiguous(), received, sent)
        return arrived

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, without gradient."""
        if self.size > 1:
            values = values.detach().clone()
            dist.all_reduce(values)
        return values

    def any(self, condition: bool) -> bool:
        """Return whether the condition holds on any process."""
        return bool(self.all_reduce_sum(torch.tensor(int(condition))))

    def broadcast(self, values: Tensor, source: int) -> Tensor:
        """Overwrite `values` in place with those of process `source`."""
        if self.size > 1:
            dist.broadcast(values, source)
        return values

    def all_gather_object(self, value: T) -> list[T]:
        """Return a small picklable value of every process, in the order of the ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def run_on_all_ranks(self, action: Callable[[], T]) -> T:
        """Call a function that may fail on some processes; if it does, raise on all of them.

        Raises:
            InputError, RunError: on rank 0, the error of the first process that failed.
            ReportedByRankZero: on the other ranks.
        """
        if self.size == 1:
            return action()
        error: Exception | None = None
        try:
            result = action()
        except (InputError, RunError, OSError) as caught:
            error = caught
        own = None if error is None else (isinstance(error, InputError), str(error))
        failures = [(rank, each) for rank, each in enumerate(self.all_gather_object(own)) if each]
        if not failures:
            return result
        rank, (is_input_error, message) = failures[0]
        if not self.is_rank_zero:
            raise ReportedByRankZero(2 if is_input_error else 1) from error
        message = f"process {rank} of {self.size}: {message}" if rank else message
        raise (InputError if is_input_error else RunError)(message) from error


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, size: int) -> Tensor:
        ctx.size = size
        gathered = rows.new_empty(size * len(rows), *rows.shape[1:])
        _all_gather(gathered, rows.contiguous())
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        own = gradient.new_empty(len(gradient) // ctx.size, *gradient.shape[1:])
        _reduce_scatter(own, gradient.contiguous())
        return own, None
