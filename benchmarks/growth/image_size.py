"""Image size: augmentation, and a step of a fixed small network."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.memory import Cost, cpu_seconds, in_new_process, least_cost
from benchmarks.micro_batch import random_views
from benchmarks.step import training_step
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, ModelConfig
from wcl.data import ArraySource
from wcl.data.loader import views_of
from wcl.data.views import ViewSpec
from wcl.system.progress import log

_SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
_BATCH = 32
_MODEL = ModelConfig(backbone="resnet_small", stem="stride2")


def measure(rounds: int) -> dict[str, dict[int, Cost]]:
    """Return the costs by image size."""
    costs: dict[str, dict[int, Cost]] = {"augmentation": {}, "step": {}}
    for side in _SIZES:
        log(f"images of {side} pixels")
        costs["augmentation"][side] = in_new_process(least_cost, rounds, _augmentation, side)
        costs["step"][side] = in_new_process(least_cost, rounds, _step, side)
    return costs


def _augmentation(side: int) -> Callable[[], float]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (_BATCH, 3, side, side), generator=generator, dtype=torch.uint8)
    specs = [ViewSpec(ViewMaker(AugmentConfig(), side), 2)]
    return partial(
        cpu_seconds, views_of, ArraySource("random", pixels), np.arange(_BATCH), specs, 0
    )


def _step(side: int) -> Callable[[], float]:
    return partial(cpu_seconds, training_step("wcl", _MODEL, side), random_views(_BATCH, side))
