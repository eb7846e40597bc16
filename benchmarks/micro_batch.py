"""Micro-batches: memory saved and time lost."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.memory import first_cost, in_new_process
from benchmarks.step import training_step
from benchmarks.timing import medians
from wcl.config import ModelConfig

_BATCH, _MICRO_BATCH, _SIZE = 2048, 256, 32


def micro_batch(rounds: int) -> dict[str, float]:
    """Compare a ResNet-18 step on 2,048 images of 32 pixels with one in micro-batches of 256.

    Micro-batches need a second forward pass. A backward pass costs two forward passes, so 4/3 of
    the time is expected.
    """
    sizes = {"whole": 0, "micro": _MICRO_BATCH}
    gigabytes = {
        name: in_new_process(first_cost, _one_step, _BATCH, _SIZE, size).gigabytes
        for name, size in sizes.items()
    }
    views = random_views(_BATCH, _SIZE)
    steps = {name: partial(_step(_SIZE, size), views) for name, size in sizes.items()}
    seconds = medians(steps, rounds)
    return {
        "whole_peak_gb": gigabytes["whole"],
        "micro_peak_gb": gigabytes["micro"],
        "micro_peak_ratio": gigabytes["micro"] / gigabytes["whole"],
        "micro_time_ratio": seconds["micro"] / seconds["whole"],
    }


def _step(image_size: int, micro_batch_size: int) -> Callable[[list[Tensor]], None]:
    model = ModelConfig(backbone="resnet18")
    return training_step("wcl", model, image_size, micro_batch_size=micro_batch_size)


def random_views(batch_size: int, image_size: int) -> list[Tensor]:
    """Return two views of a batch: (2, batch_size, 3, image_size, image_size)."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, batch_size, 3, image_size, image_size, generator=generator)]


def _one_step(batch_size: int, image_size: int, micro_batch_size: int) -> None:
    _step(image_size, micro_batch_size)(random_views(batch_size, image_size))
