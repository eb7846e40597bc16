"""The processes of a run as one: who this is among them, and what they tell each other.

All of them take part in every call here, in the same order. Alone, a process knows already what
the others would tell it, so code that is written for many runs on one without a special case.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from wcl.system.errors import InputError, ReportedByRankZero, RunError

T = TypeVar("T")
# Called so from torch 2.13 on; the names before still work there, with a warning at every call.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class World:
    """This process among the `size` of a run.

    Args:
        rank: its number, from 0.
        size: how many there are.
        here: how many of them are on this machine; None for all.
    """

    def __init__(self, rank: int = 0, size: int = 1, here: int | None = None) -> None:
        self.rank = rank
        self.size = size
        self.here = here or size
        """How many share this machine, its memory and its disks."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def gather(self, rows: Tensor) -> Tensor:
        """(n, …) of this process → (size·n, …) of all, in the order of their ranks.

        The gradient of a row is the sum of what all processes made of it.
        """
        if self.size == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, self.size)  # type: ignore[no-untyped-call]
        return gathered

    def exchange(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send the first `sent[0]` rows to process 0, the next to process 1 and so on.

        Args:
            rows: (sum of sent, …).
            sent: how many rows go to each process.
            received: how many come from each.

        Returns:
            (sum of received, …) in the order of the ranks; gradient does not flow through it.
        """
        if self.size == 1:
            return rows
        arriving = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(arriving, rows.detach().contiguous(), received, sent)
        return arriving

    def add(self, values: Tensor) -> Tensor:
        """The sum over all processes; gradient does not flow through it."""
        if self.size > 1:
            values = values.detach().clone()
            dist.all_reduce(values)
        return values

    def any(self, here: bool) -> bool:
        """Whether it is so on any process."""
        if self.size == 1:
            return here
        return bool(self.add(torch.tensor(int(here))))

    def broadcast(self, values: Tensor, source: int) -> Tensor:
        """Fill `values` with those that process `source` has, in place."""
        if self.size > 1:
            dist.broadcast(values, source)
        return values

    def all_gather_object(self, value: T) -> list[T]:
        """Small plain values, one of each process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def run_on_all_ranks(self, action: Callable[[], T]) -> T:
        """Do something that may fail; if it fails on one process, all of them end, and one speaks.

        Raises:
            InputError, RunError: of the first process that it failed on, raised by process 0.
            ToldElsewhere: the same on the others.
        """
        error: Exception | None = None
        try:
            result = action()
        except (InputError, RunError, OSError) as caught:
            error = caught
        if self.size == 1:
            if error is not None:
                raise error
            return result
        told = None if error is None else (isinstance(error, InputError), str(error))
        failed = [(rank, each) for rank, each in enumerate(self.all_gather_object(told)) if each]
        if not failed:
            return result
        rank, (of_input, message) = failed[0]
        if not self.is_rank_zero:
            raise ReportedByRankZero(2 if of_input else 1) from error
        message = f"process {rank} of {self.size}: {message}" if rank else message
        raise (InputError if of_input else RunError)(message) from error


class _Gather(torch.autograd.Function):
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
