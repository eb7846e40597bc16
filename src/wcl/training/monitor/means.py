"""Losses and gradients: read from the device now and then, and averaged over an epoch."""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from wcl.distributed.world import World
from wcl.methods import Losses
from wcl.system.errors import NotFinite


class Means:
    """The figures of an epoch's steps.

    Args:
        half: whether the optimizer itself leaves out steps whose gradient is not finite, as it does
            with numbers of 16 bits.
        world: the processes, whose parts of a loss add up to it.
    """

    def __init__(self, half: bool, world: World) -> None:
        self._half = half
        self._world = world
        self._unread: list[tuple[int, Tensor, Tensor]] = []
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._left_out = 0

    def add_step(self, step: int, losses: Losses, gradient: Tensor) -> None:
        """Note the losses of a step and its gradient's length, without reading them yet."""
        values = {"loss": losses.total, **losses.parts}
        self._names = list(values)
        numbers = torch.stack([value.detach().float() for value in values.values()])
        self._unread.append((step, numbers, gradient.float()))

    def read(self) -> dict[str, float]:
        """Fetch what was noted since the last time; the newest of it, or nothing.

        Raises:
            NotFinite: a loss or a gradient among it.
        """
        if not self._unread:
            return {}
        steps, losses, lengths = zip(*self._unread, strict=True)
        rows = self._world.all_reduce_sum(torch.stack(losses))
        gradients = torch.stack(lengths).tolist()  # which are the same on all processes
        for step, numbers, gradient in zip(steps, rows.tolist(), gradients, strict=True):
            values = dict(zip(self._names, numbers, strict=True))
            if not all(math.isfinite(value) for value in values.values()):
                found = ", ".join(f"{name} {value}" for name, value in values.items())
                raise NotFinite(step, f"the loss is not finite ({found})")
            if not self._half:
                if not math.isfinite(gradient):
                    raise NotFinite(step, f"the gradient is not finite (loss {values['loss']:g})")
                values["gradient"] = gradient
            elif not math.isfinite(gradient):
                self._left_out += 1
            self.add(values)
        self._unread.clear()
        return values

    def add(self, values: dict[str, float]) -> None:
        """Count figures of a step in."""
        for name, value in values.items():
            self._sums[name] += value
            self._counts[name] += 1

    def of_epoch(self) -> dict[str, float]:
        """The means."""
        return {name: self._sums[name] / self._counts[name] for name in self._sums}

    def overflows(self) -> dict[str, float]:
        """How many steps of the run were left out, where that can be."""
        return {"overflows": float(self._left_out)} if self._half else {}

    def clear(self) -> None:
        """Begin another epoch."""
        self._sums.clear()
        self._counts.clear()

    def state(self) -> dict[str, Any]:
        return {
            "sums": dict(self._sums),
            "counts": dict(self._counts),
            "overflows": self._left_out,
        }

    def resume(self, state: dict[str, Any]) -> None:
        self._sums.update(state["sums"])
        self._counts.update(state["counts"])
        self._left_out = state["overflows"]
