"""An epoch of SimCLR with SGD, by wcl and by lightly."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from benchmarks.process_tree import peak_of_tree
from benchmarks.step import training_step
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, ModelConfig, OptimConfig
from wcl.data import ArraySource, open_source
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.models.backbones import build_backbone
from wcl.system import machine

if TYPE_CHECKING:
    from benchmarks.lightly_simclr import LightlyTraining

_SGD = OptimConfig(name="sgd", weight_decay=1e-4)


@dataclass(frozen=True)
class Workload:
    """Images, and the network that is trained on them."""

    model: ModelConfig
    images: int
    image_size: int
    batch_size: int
    augment: AugmentConfig
    folder: str = ""
    """Folder of photos; without it, small images in memory."""


def our_epoch(work: Workload) -> Callable[[], None]:
    """Return a function that trains an epoch."""
    if work.folder:
        source = open_source(work.folder)
    else:
        source = ArraySource("random", _random_pixels(work))
    loader = Loader(source, work.batch_size, 0, torch.device("cpu"))
    take = training_step("simclr", work.model, work.image_size, optim=_SGD)
    specs, epochs = [ViewSpec(ViewMaker(work.augment, work.image_size), 2)], count()

    def train() -> None:
        for batch in loader.epoch(next(epochs), specs):
            take(batch.views)

    return train


def lightly_training(work: Workload) -> "LightlyTraining":
    """Return the training with lightly; the augmentation is that of the kind of images."""
    from benchmarks.lightly_simclr import (
        LightlyTraining,
        Pictures,
        photo_transform,
        small_transform,
    )

    data = Path(work.folder) if work.folder else Pictures(_random_pixels(work))
    transform = (photo_transform if work.folder else small_transform)(work.image_size)
    backbone = build_backbone(work.model, 3, work.image_size)
    return LightlyTraining(data, backbone, work.model, work.batch_size, transform)


def peak_memory(work: Workload, workers: int) -> dict[str, float]:
    """Return the peak gigabytes of two epochs by side, each in a process of its own.

    Args:
        work: the images and the network.
        workers: number of loader processes of lightly; ours chooses by itself.
    """
    return {
        "ours": peak_of_tree(_train_ours, work),
        "lightly": peak_of_tree(_train_lightly, work, workers),
    }


def _train_ours(work: Workload) -> None:
    machine.keep_freed_memory()
    train = our_epoch(work)
    train()
    train()


def _train_lightly(work: Workload, workers: int) -> None:
    train = lightly_training(work).epoch(workers)
    train()
    train()


def _random_pixels(work: Workload) -> Tensor:
    shape = work.images, 3, work.image_size, work.image_size
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
