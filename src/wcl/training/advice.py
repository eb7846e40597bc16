"""Warnings about settings with which a run can start but will hardly succeed."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from wcl.config import PretrainConfig
from wcl.models.encoder import Encoder
from wcl.training.setup import TrainingSetup

FEW_STEPS = 200
"""On the digits, k-NN accuracy is 0.888 after 10 steps, 0.898 after 30, and 0.914 after 100."""
FEW_ADAPTING_STEPS = 10
"""From pretrained weights: on 252 photos, 14 steps gain 11 points with one label per class
(docs/results.md)."""
FEW_IMAGES = 500
"""Fewer are learned by heart; pretrained weights have seen a million."""
SMALL_IMAGE = 16
"""Pixels; in less, hardly any content is left to tell crops apart by."""


def advice(setup: TrainingSetup) -> Iterator[str]:
    """Yield a warning, with its remedy, for each setting that does not fit the run."""
    config, images, per_epoch = setup.config, len(setup.source), setup.steps_per_epoch
    few = few_steps(config)
    if setup.total_steps < few:
        steps = setup.total_steps
        problem = f"{steps} steps are few" if steps != 1 else "1 step is few"
        more = f"--epochs {-(-few // per_epoch)}"
        if config.minutes:
            more = f"--minutes {math.ceil(config.minutes * few / steps)}"
        yield f"{problem}; with {more} there are at least {few}"
    if images < FEW_IMAGES and not config.model.weights:
        yield (
            f"{images} images are few to learn from; add some, or start from pretrained weights "
            "with --model.weights timm"
        )
    if setup.method.needs_features and not config.model.weights:
        yield (
            f"{config.method} learns from the features of the weights that it starts from, which "
            "are random; give --model.weights, such as timm"
        )
    warmup = getattr(config.loss, "warmup_epochs", 0)
    if warmup >= config.epochs:
        yield (
            f"{config.method} is the same as moco in the first {warmup:g} epochs, which are all; "
            f"use a --loss.warmup_epochs below {config.epochs}, or more "
            + ("--minutes" if config.minutes else "--epochs")
        )
    if config.crops.features == "plain" and setup.neighbor_crops is None:
        yield (
            "--crops.features has no effect without crops of neighbors; set --crops.count and "
            "--crops.neighbors true, or leave it out"
        )
    if config.batch_size > images // 2:
        yield (
            f"a batch of {config.batch_size} of {images} images leaves one step per epoch; use a "
            f"--batch_size of at most {max(2, images // 4)}"
        )
    if config.image_size < SMALL_IMAGE:
        yield (
            f"images of {config.image_size}×{config.image_size} pixels show little; use an "
            f"--image_size of at least {SMALL_IMAGE}"
        )
    elif smallest_map(setup.encoder, config.image_size) < 2:
        stem = ", or --model.stem cifar" if _has_native_stem(setup.encoder) else ""
        yield (
            f"the last layers of {config.model.backbone} see images of {config.image_size}×"
            f"{config.image_size} pixels as a single one; use an --image_size of at least "
            f"{2 * config.image_size}{stem}"
        )


def few_steps(config: PretrainConfig) -> int:
    """Return the number of steps below which a run hardly changes its network."""
    return FEW_ADAPTING_STEPS if config.model.weights else FEW_STEPS


@torch.no_grad()
def smallest_map(encoder: Encoder, size: int) -> int:
    """Return the least side, in pixels, of what the spatial convolutions of an encoder compute."""
    sides = [size]

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        sides.append(min(output.shape[-2:]))

    spatial = [m for m in encoder.modules() if isinstance(m, nn.Conv2d) and max(m.kernel_size) > 1]
    hooks = [module.register_forward_hook(note) for module in spatial]
    try:
        blank = torch.zeros(1, encoder.description.channels, size, size)
        encoder.eval().backbone(blank.to(next(encoder.parameters())))
    finally:
        for hook in hooks:
            hook.remove()
    return min(sides)


def _has_native_stem(encoder: Encoder) -> bool:
    model = encoder.description.model
    return model.stem == "native" and model.backbone.startswith("resnet")
