"""Averages of losses and gradient norms over an epoch, read from the device now and then."""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from wcl.distributed.world import World
from wcl.methods import Losses
from wcl.system.errors import NotFinite


class MetricAverages:
    """Averages of the metrics of an epoch's steps.

    Args:
        loss_scaling: whether the optimizer skips steps whose gradient overflows, as it does in
            16-mixed precision; such steps are counted instead of raising an error.
        world: the processes, whose parts of a loss are summed.
    """

    def __init__(self, loss_scaling: bool, world: World) -> None:
        self._loss_scaling = loss_scaling
        self._world = world
        self._pending: list[tuple[int, Tensor, Tensor]] = []
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._overflows = 0

    def add_step(self, step: int, losses: Losses, gradient_norm: Tensor) -> None:
        """Remember the losses and the gradient norm of a step without reading them yet."""
        values = {"loss": losses.total, **losses.parts}
        self._names = list(values)
        numbers = torch.stack([value.detach().float() for value in values.values()])
        self._pending.append((step, numbers, gradient_norm.float()))

    def read_pending(self) -> dict[str, float]:
        """Read the pending steps from the device; return the values of the last one, if any.

        Raises:
            NotFinite: a loss or a gradient is not finite.
        """
        if not self._pending:
            return {}
        steps, losses, norms = zip(*self._pending, strict=True)
        rows = self._world.all_reduce_sum(torch.stack(losses)).tolist()
        gradients = torch.stack(norms).tolist()  # the same on all processes
        for step, numbers, gradient in zip(steps, rows, gradients, strict=True):
            values = dict(zip(self._names, numbers, strict=True))
            if not all(math.isfinite(value) for value in values.values()):
                text = ", ".join(f"{name} {value}" for name, value in values.items())
                raise NotFinite(step, f"the loss is not finite ({text})")
            if not self._loss_scaling:
                if not math.isfinite(gradient):
                    raise NotFinite(step, f"the gradient is not finite (loss {values['loss']:g})")
                values["gradient"] = gradient
            elif not math.isfinite(gradient):
                self._overflows += 1
            self.add(values)
        self._pending.clear()
        return values

    def add(self, values: dict[str, float]) -> None:
        """Include values of a step in the averages."""
        for name, value in values.items():
            self._sums[name] += value
            self._counts[name] += 1

    def means(self) -> dict[str, float]:
        """Return the averages of the epoch."""
        return {name: self._sums[name] / self._counts[name] for name in self._sums}

    def overflows(self) -> dict[str, float]:
        """Return the number of skipped steps of the run, where steps can be skipped."""
        return {"overflows": float(self._overflows)} if self._loss_scaling else {}

    def clear(self) -> None:
        """Start another epoch."""
        self._sums.clear()
        self._counts.clear()

    def state(self) -> dict[str, Any]:
        return {
            "sums": dict(self._sums),
            "counts": dict(self._counts),
            "overflows": self._overflows,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._sums.update(state["sums"])
        self._counts.update(state["counts"])
        self._overflows = state["overflows"]
