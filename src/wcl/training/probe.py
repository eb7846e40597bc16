"""Measure what a step of a run costs on few images, without changing the run.

The probe trains a copy of the method and restores the generators of random numbers. The network
takes a few images, and its cost per image holds for all. The losses compare all images of a batch
with each other, so they are computed for as many images as a batch has.
"""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from wcl.data import ArraySource
from wcl.data.loader import views_of
from wcl.distributed.sharding import BatchSharding
from wcl.distributed.world import World
from wcl.methods import Method
from wcl.ops.randomness import RngState
from wcl.training.footprint import (
    KeptTensors,
    gradient_bytes,
    optimizer_state,
    saved_for_backward,
    weights_of,
)
from wcl.training.optimizers import build_optimizer
from wcl.training.setup import TrainingSetup
from wcl.training.step import MultiViewModel

_FIRST_IMAGES = 4
_SECONDS = 0.3  # of the timed pass: as many images as take about that long
_LOSS_IMAGES = 4096  # at most; the losses of more are extrapolated by the number of pairs
_SECOND_FORWARD = 4 / 3  # micro-batches pass forward twice, and backward takes two forwards


@dataclass(frozen=True)
class StepCost:
    """Bytes and seconds of a step on one process."""

    weights: int
    """Bytes of the method's parameters and buffers."""
    updates: int
    """Bytes of their gradients and of the optimizer's state."""
    activations: int
    """Bytes that are kept for the backward pass, and those of the views."""
    seconds: float
    """0 if the step was not timed."""


def probe_step(setup: TrainingSetup, fabric: Fabric, timed: bool) -> StepCost | None:
    """Measure a step of a run; return None if too few of its images can be read."""
    rng = RngState(fabric.device)
    before = rng.state()
    try:
        return _Probe(setup, fabric).measure(timed)
    finally:
        rng.restore(before)


class _Probe:
    def __init__(self, setup: TrainingSetup, fabric: Fabric) -> None:
        self._setup = setup
        self._device = fabric.device
        self._precision = fabric.strategy.precision
        self._method: Method = copy.deepcopy(setup.method).train()
        model = MultiViewModel(self._method, World())  # without the other processes
        self._model = self._precision.convert_module(model)
        self._model.to(self._device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._optimizer = build_optimizer(self._method, setup.config.optim, lr=0.0)

    def measure(self, timed: bool) -> StepCost | None:
        setup, sharding = self._setup, self._setup.sharding
        images, batch_size = sharding.local_size, sharding.batch_size
        at_once = sharding.local_micro_size
        count = min(_FIRST_IMAGES, at_once)
        found = self._network(count)
        if found is not None and timed:  # again, since the first pass prepares the kernels
            found = self._network(max(count, min(at_once, int(count * _SECONDS / found.seconds))))
        if found is None:
            return None
        rows = min(batch_size, _LOSS_IMAGES)
        loss_bytes, loss_seconds = self._losses(found, rows)
        pairs = (batch_size / rows) ** 2
        began = time.perf_counter()
        self._optimizer.step()
        self._method.after_step(0.5)
        update = time.perf_counter() - began
        in_memory = isinstance(setup.source, ArraySource)
        loading = images * found.loading_seconds
        computing = images * found.seconds + loss_seconds * pairs + update
        if at_once < images:
            computing *= _SECOND_FORWARD
        if in_memory and self._device.type != "cpu":
            loading = 0.0  # the views are made on the device, in no time
        workers = 0 if in_memory else setup.loader.num_workers
        seconds = max(computing, loading / workers) if workers else computing + loading
        kept = KeptTensors(optimizer_state(self._optimizer))
        return StepCost(
            KeptTensors(weights_of(self._method)).nbytes(),
            kept.nbytes() + gradient_bytes(self._method),
            round(at_once * found.kept + images * found.views + loss_bytes * pairs),
            seconds if timed else 0.0,
        )

    def _network(self, count: int) -> "_NetworkCost | None":
        """Pass views of some images through the network, and backward."""
        setup = self._setup
        index = setup.loader.order(0)[:count]
        began = time.perf_counter()
        batch = views_of(setup.source, index, setup.view_specs(0), setup.config.seed)
        loading = time.perf_counter() - began
        images = len(batch.index)
        if images < 2:
            return None
        views = [each.to(self._device) for each in batch.views]
        self._optimizer.zero_grad(set_to_none=True)
        began = time.perf_counter()
        with saved_for_backward() as kept:
            with torch.no_grad():
                targets = self._embed(views, "targets")
            out = self._embed(views, "embed")
        trained = [values.sum() for values in out.values() if values.requires_grad]
        # Of a scalar: given a gradient, torch imports sympy, which would count as computing.
        torch.stack(trained).sum().backward()
        self._synchronize()
        return _NetworkCost(
            kept.nbytes(besides=KeptTensors(weights_of(self._method))) / images,
            sum(each.nbytes for each in views) / images,
            (time.perf_counter() - began) / images,
            loading / count,
            {name: values.detach() for name, values in out.items()},
            targets,
        )

    def _losses(self, network: "_NetworkCost", images: int) -> tuple[int, float]:
        """Return the bytes and seconds of the losses of this many images, from a few repeated."""
        every = np.arange(images)
        shard = BatchSharding(images).shard(every, every, self._device)

        def repeated(values: Tensor) -> Tensor:
            return values[:, torch.arange(images, device=values.device) % values.shape[1]]

        out = {name: repeated(v).requires_grad_() for name, v in network.out.items()}
        targets = {name: repeated(values) for name, values in network.targets.items()}
        began = time.perf_counter()
        with saved_for_backward() as kept:
            losses = self._method.loss(out, targets, shard)
        losses.total.backward()
        self._synchronize()
        seconds = time.perf_counter() - began
        return kept.nbytes(besides=KeptTensors(weights_of(self._method))), seconds

    def _embed(self, views: Sequence[Tensor], branch: str) -> dict[str, Tensor]:
        """Call the model as the engine does."""
        with self._precision.forward_context():
            out = self._model(self._precision.convert_input(list(views)), branch)
        converted: dict[str, Tensor] = self._precision.convert_output(out)
        return converted

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@dataclass(frozen=True)
class _NetworkCost:
    """Cost of an image in the network, and the embeddings of a few."""

    kept: float
    """Bytes that are kept for the backward pass."""
    views: float
    """Bytes of its views."""
    seconds: float
    loading_seconds: float
    """Seconds to read it and make its views, by one process."""
    out: dict[str, Tensor]
    targets: dict[str, Tensor]
