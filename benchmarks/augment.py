"""Augmentation of 32×32 images on one core: wcl, torchvision per image, kornia per batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

from benchmarks.timing import medians
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.ops.randomness import Draws

_IMAGES = 512
_SCALE, _JITTER, _GRAYSCALE = (0.2, 1.0), (0.4, 0.4, 0.4, 0.1), 0.2


def measure(rounds: int) -> dict[str, float | None]:
    """Return the views per second of each pipeline and their ratios."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, (_IMAGES, 32, 32, 3), dtype=np.uint8)
        pipelines = {"ours": _ours(pixels), "torchvision": _torchvision(pixels)}
        if (kornia := _kornia(pixels)) is not None:
            pipelines["kornia"] = kornia
        seconds = medians(pipelines, rounds)
    finally:
        torch.set_num_threads(threads)
    figures: dict[str, float | None] = {
        "over_torchvision": seconds["torchvision"] / seconds["ours"],
        # None without kornia: `make bench` installs it
        "over_kornia": seconds["kornia"] / seconds["ours"] if "kornia" in seconds else None,
    }
    return figures | {f"{name}_views_per_second": _IMAGES / s for name, s in seconds.items()}


def _ours(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Callable[[], Any]:
    brightness, contrast, saturation, hue = _JITTER
    config = AugmentConfig(
        scale=_SCALE,
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        grayscale=_GRAYSCALE,
        blur=0,
    )
    maker = ViewMaker(config, 32)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    draws = Draws(0, 0, np.arange(_IMAGES), np.zeros(_IMAGES, dtype=np.int64))
    return lambda: maker.from_images(images, draws)


def _torchvision(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Callable[[], Any]:
    images = [Image.fromarray(image) for image in pixels]
    defaults = AugmentConfig()
    pipeline = transforms.Compose(
        [
            transforms.RandomResizedCrop(32, scale=_SCALE),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(*_JITTER)], p=0.8),
            transforms.RandomGrayscale(_GRAYSCALE),
            transforms.ToTensor(),
            transforms.Normalize(defaults.mean, defaults.std),
        ]
    )
    return lambda: torch.stack([pipeline(image) for image in images])


def _kornia(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Callable[[], Any] | None:
    try:
        import kornia.augmentation as K
    except ImportError:
        return None
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    defaults = AugmentConfig()
    pipeline = torch.nn.Sequential(
        K.RandomResizedCrop((32, 32), scale=_SCALE),
        K.RandomHorizontalFlip(),
        K.ColorJitter(*_JITTER, p=0.8),
        K.RandomGrayscale(p=_GRAYSCALE),
        K.Normalize(torch.tensor(defaults.mean), torch.tensor(defaults.std)),
    )
    return lambda: pipeline(images.float() / 255)
