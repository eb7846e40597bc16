"""Training, embedding and augmentation beside lightly, on the same network, batch and data.

lightly runs with the number of loader processes that is fastest on this machine, ours with its
default. Both train SimCLR with SGD; the augmentations have the same operations and strengths. With
labeled images, both also race (see `benchmarks.race`).
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.peer_training import Workload, lightly_training, our_epoch, peak_memory
from benchmarks.race import add_arguments, race
from benchmarks.timing import medians
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, ModelConfig
from wcl.data import open_source
from wcl.data.decode import whole_pixels
from wcl.evaluation.features import features_and_rows
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.ops.randomness import Draws
from wcl.paper.synthetic import write_photos
from wcl.system.progress import log

__all__ = ["add_arguments", "measure"]

_SMALL_AUGMENTATION = AugmentConfig(
    scale=(0.2, 1), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=0
)
_PHOTO_AUGMENTATION = AugmentConfig(
    scale=(0.08, 1), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur=0.5
)
_RESNET_SMALL = ModelConfig(backbone="resnet_small", stem="stride2", head_hidden_dim=512)
_RESNET18 = ModelConfig(backbone="resnet18", head_hidden_dim=512)
_SMALL = Workload(_RESNET_SMALL, 2048, 32, 256, _SMALL_AUGMENTATION)
_PHOTOS = Workload(_RESNET18, 128, 128, 32, _PHOTO_AUGMENTATION)
_AUGMENTED = 16  # photos, 224 pixels
_FIGURES = ["train", "train_memory", "train_photos", "train_photos_memory", "embed"]
_FIGURES += ["augment_photos", "knn_points"]


def measure(rounds: int, data: str = "", **of_race: Any) -> dict[str, float | None]:
    """Return how many times as fast as lightly we are, and the quotient of the peak memory.

    Args:
        rounds: timings of each alternative.
        data: labeled images to race on; without, the difference in k-NN accuracy is None.
        of_race: further arguments of the race.

    Returns:
        Figures by name; None for all if lightly is not installed.
    """
    figures: dict[str, float | None] = {f"{name}_over_lightly": None for name in _FIGURES}
    try:
        import lightly  # noqa: F401
    except ImportError:
        log("lightly is not installed: pip install 'wcl-torch[bench]'")
        return figures
    if data:
        figures |= race(data, **of_race)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder, _PHOTOS.images)
        photos = replace(_PHOTOS, folder=name)
        figures |= _training("train", _SMALL, rounds)
        figures |= _training("train_photos", photos, rounds)
        figures |= _speed("embed", photos.images, *_embedding(photos), rounds)
        figures |= _speed("augment_photos", _AUGMENTED, *_augmentation(folder), rounds)
    return figures


def _training(name: str, work: Workload, rounds: int) -> dict[str, float]:
    theirs = lightly_training(work)
    workers, _ = theirs.fastest_workers()
    figures = _speed(name, work.images, our_epoch(work), theirs.epoch(workers), rounds)
    gigabytes = peak_memory(work, workers)
    figures[f"{name}_memory_over_lightly"] = gigabytes["ours"] / gigabytes["lightly"]
    figures[f"{name}_gb"], figures[f"{name}_gb_lightly"] = gigabytes.values()
    return figures


def _speed(
    name: str,
    images: int,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int,
) -> dict[str, float]:
    """Compare what ours and lightly do with a number of images."""
    seconds = medians({"ours": ours, "lightly": theirs}, rounds)
    return {
        f"{name}_over_lightly": seconds["lightly"] / seconds["ours"],
        f"{name}_images_per_second": images / seconds["ours"],
    }


Pair = tuple[Callable[[], object], Callable[[], object]]
"""Two functions that process the same images, ours and lightly's."""


def _embedding(work: Workload) -> Pair:
    from benchmarks.lightly_simclr import embedding

    mean, std = AugmentConfig().mean, AugmentConfig().std
    encoder = Encoder(Description(work.model, (), 3, work.image_size, mean, std)).eval()
    ours = partial(features_and_rows, encoder, open_source(work.folder), -1)
    return ours, embedding(Path(work.folder), work.model, work.image_size)


def _augmentation(folder: Path) -> Pair:
    """Pair the augmentation of decoded photos, one view each."""
    from benchmarks.lightly_simclr import photo_transform

    pictures = [Image.open(path).convert("RGB") for path in sorted(folder.iterdir())[:_AUGMENTED]]
    pixels = torch.stack([whole_pixels(picture) for picture in pictures])
    maker = ViewMaker(_PHOTO_AUGMENTATION, 224)
    draws = Draws(0, 0, np.arange(_AUGMENTED), np.zeros(_AUGMENTED, dtype=np.int64))
    transform = photo_transform(224).transforms[0]

    def theirs() -> Tensor:
        return torch.stack([transform(picture) for picture in pictures])

    return lambda: maker.from_images(pixels, draws), theirs
