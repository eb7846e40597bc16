"""Augmentation of 32×32 images per core: ours, torchvision's per-image pipeline, kornia's batch."""

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
_AREA, _JITTER, _GRAY = (0.2, 1.0), (0.4, 0.4, 0.4, 0.1), 0.2


def measure(rounds: int) -> dict[str, float | None]:
    """Views per second of each on one core, and the ratios."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, (_IMAGES, 32, 32, 3), dtype=np.uint8)
        contestants = {"ours": _ours(pixels), "torchvision": _torchvision(pixels)}
        if (kornia := _kornia(pixels)) is not None:
            contestants["kornia"] = kornia
        seconds = medians(contestants, rounds)
    finally:
        torch.set_num_threads(threads)
    found: dict[str, float | None] = {
        "over_torchvision": seconds["torchvision"] / seconds["ours"],
        # None where kornia is not installed: pip install 'wcl[bench]'
        "over_kornia": seconds["kornia"] / seconds["ours"] if "kornia" in seconds else None,
    }
    return found | {f"{name}_views_per_second": _IMAGES / s for name, s in seconds.items()}


def _ours(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Callable[[], Any]:
    brightness, contrast, saturation, hue = _JITTER
    config = AugmentConfig(
        scale=_AREA,
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        grayscale=_GRAY,
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
            transforms.RandomResizedCrop(32, scale=_AREA),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(*_JITTER)], p=0.8),
            transforms.RandomGrayscale(_GRAY),
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
        K.RandomResizedCrop((32, 32), scale=_AREA),
        K.RandomHorizontalFlip(),
        K.ColorJitter(*_JITTER, p=0.8),
        K.RandomGrayscale(p=_GRAY),
        K.Normalize(torch.tensor(defaults.mean), torch.tensor(defaults.std)),
    )
    return lambda: pipeline(images.float() / 255)
