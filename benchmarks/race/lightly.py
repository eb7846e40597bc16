"""lightly's side of a race: SimCLR, with the network of our recipe.

It has the batch, the optimizer, the augmentation and the warm-up of our recipe cifar10-cpu, and the
normalization of lightly's transform.
"""

from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor

from benchmarks.lightly_simclr import LightlyTraining, Pictures, small_transform
from benchmarks.race.job import Job
from benchmarks.race.ours import run_config
from benchmarks.race.snapshots import Snapshots
from wcl.config import AugmentConfig, PretrainConfig
from wcl.config.layering import settings
from wcl.data import ArraySource, in_memory, open_source, with_format
from wcl.methods import method_settings
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.system import machine
from wcl.system.errors import InputError
from wcl.training.optimizers import lr_at, peak_lr

_SAMPLE = 2048  # images with which the number of workers is chosen


def train(job: Job) -> dict[str, Any]:
    """Train until the deadline and leave snapshots; return facts about the training.

    The clock starts after the imports and after the choice of the number of loader processes,
    before images are read.
    """
    machine.keep_freed_memory()
    config = settings("cifar10-cpu", {}, method_settings)
    sample = _pixels(job)[:_SAMPLE]
    workers, seconds = _training(_encoder(job), sample, config).fastest_workers()

    torch.manual_seed(job.seed)
    snapshots = Snapshots(job.folder / "snapshots")
    encoder, pixels = _encoder(job), _pixels(job)
    training = _training(encoder, pixels, config)
    loader, images = training.loader(workers), 0
    deadline = 60 * job.minutes
    warmup = min(config.optim.warmup_epochs * seconds * len(pixels) / len(sample), deadline / 2)
    peak = peak_lr(config.optim, config.batch_size)
    for batch in chain.from_iterable(repeat(loader)):
        # The schedule counts milliseconds, not steps, so that it ends at the deadline.
        training.set_lr(lr_at(_ms(snapshots.seconds), peak, _ms(warmup), _ms(deadline)))
        training.step(batch)
        images += len(batch[0][0])
        snapshots.take_if_due(encoder)
        if snapshots.seconds >= deadline:
            break
    snapshots.take(encoder)
    return {"workers": workers, "epochs": images / len(pixels)}


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _encoder(job: Job) -> Encoder:
    """Return the untrained network of our recipe, without projection heads."""
    config, defaults = run_config(job), AugmentConfig()
    normalization = defaults.mean, defaults.std  # as in lightly's transform
    return Encoder(Description(config.model, (), 3, config.image_size, *normalization))


def _training(encoder: Encoder, pixels: Tensor, config: PretrainConfig) -> LightlyTraining:
    """Return the training of the backbone of an encoder."""
    described = encoder.description
    transform = small_transform(described.image_size)
    data = Pictures(pixels)
    return LightlyTraining(data, encoder.backbone, described.model, config.batch_size, transform)


def _pixels(job: Job) -> Tensor:
    source = in_memory(with_format(open_source(job.images), 3))
    if not isinstance(source, ArraySource):
        raise InputError("--data: a race needs small images of one size")
    return source.pixels
