"""Time and memory of a run's steps relative to those of another run."""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from lightning_fabric import Fabric

from wcl.config import PretrainConfig
from wcl.data import ArraySource
from wcl.data.loader import Batch, Loader
from wcl.distributed.sharding import BatchSharding
from wcl.distributed.world import World
from wcl.methods import Method
from wcl.training.footprint import (
    gradient_bytes,
    optimizer_state,
    saved_for_backward,
    weights_of,
)
from wcl.training.optimizers import build_optimizer, peak_lr
from wcl.training.setup import build_method
from wcl.training.step import MultiViewModel, gradient_step
from wcl.training.views import view_specs

_WARMUP, _ROUNDS = 2, 7
_CPU = torch.device("cpu")


def relative_cost(config: PretrainConfig, other: PretrainConfig, images: int) -> dict[str, float]:
    """Compare the epochs of two runs on as many random images, on this machine's CPU.

    Steps of the two runs alternate, and a run's time is the median of its steps times their number
    plus what it does at the end of an epoch, on average. Memory is what a step has to keep:
    parameters, gradients, the optimizer's state, buffers, and the tensors that autograd saves for
    the backward pass.

    Args:
        config, other: settings of the two runs.
        images: number of images.

    Returns:
        time, memory: multiples of those of the other run.
    """
    if config == other:
        return {"time": 1.0, "memory": 1.0}
    runs = _Steps(config, images), _Steps(other, images)
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(_WARMUP + _ROUNDS):
        for run, times in zip(runs, seconds, strict=True):
            taken = _timed(run.step)
            if number >= _WARMUP:
                times.append(taken)
    ours, theirs = (
        statistics.median(times) * run.steps_per_epoch + run.seconds_between_epochs()
        for run, times in zip(runs, seconds, strict=True)
    )
    return {"time": ours / theirs, "memory": runs[0].bytes_of_step() / runs[1].bytes_of_step()}


def _timed(function: Callable[[], None]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


class _Steps:
    """Steps of a run, without its folder, its log and its search for neighbors."""

    def __init__(self, config: PretrainConfig, images: int) -> None:
        channels = len(config.augment.mean)
        generator = torch.Generator().manual_seed(0)
        size = (images, channels, 32, 32)
        pixels = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
        labels = torch.arange(images) % 10
        source = ArraySource("random pixels", pixels, labels, [str(label) for label in range(10)])
        loader = Loader(source, config.batch_size, config.seed, _CPU)
        self._epochs = config.epochs
        self._steps = 0
        self.steps_per_epoch = loader.steps_per_epoch
        self._world = World()
        self._sharding = BatchSharding(config.batch_size, self._world, config.micro_batch_size)
        self._method = build_method(config, source, loader.steps_per_epoch)
        self._method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        assert config.precision != "auto"  # `wcl reproduce` chooses it
        self._fabric = Fabric(accelerator="cpu", devices=1, precision=config.precision)
        optimizer = build_optimizer(
            self._method, config.optim, peak_lr(config.optim, config.batch_size)
        )
        self._model, self._optimizer = self._fabric.setup(
            MultiViewModel(self._method, self._world), optimizer
        )
        specs = view_specs(config, channels)
        self._batches: Iterator[Batch] = (
            batch for epoch in range(_WARMUP + _ROUNDS + 1) for batch in loader.epoch(epoch, specs)
        )

    def step(self) -> None:
        """Make a batch and take a step."""
        self._steps += 1
        batch = next(self._batches)
        shard = self._sharding.shard(batch.global_index, batch.positions, _CPU)
        self._optimizer.zero_grad(set_to_none=True)
        gradient_step(self._fabric, self._model, self._method, batch.views, shard, self._world)
        self._optimizer.step()
        self._method.after_step(0.5)

    def seconds_between_epochs(self) -> float:
        """Time what the method does at the end of all epochs, such as clustering; the mean."""
        if type(self._method).end_of_epoch is Method.end_of_epoch:
            return 0.0
        while self._steps < self.steps_per_epoch:  # so that it has features of all images
            self.step()
        times = [_timed(lambda: self._method.end_of_epoch(None)) for _ in range(self._epochs)]
        return statistics.fmean(times)

    def bytes_of_step(self) -> int:
        """Count the bytes that a step has to keep."""
        with saved_for_backward() as kept:
            self.step()
        for tensor in (*weights_of(self._method), *optimizer_state(self._optimizer)):
            kept.add(tensor)
        return kept.nbytes() + gradient_bytes(self._method)
