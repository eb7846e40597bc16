"""Training, embedding and augmentation beside lightly, on the same network, batch and data.

lightly runs with the number of loader processes that is fastest on this machine, ours with its
default. Both train SimCLR with SGD; the augmentations have the same operations and strengths.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.step import training_step
from benchmarks.timing import medians
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, ModelConfig, OptimConfig
from wcl.data import ArraySource, Source, open_source
from wcl.data.decode import whole_pixels
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.evaluation.features import features_and_rows
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.ops.randomness import Draws
from wcl.paper.synthetic import write_photos

_CPU = torch.device("cpu")
_SMALL = ModelConfig(backbone="resnet_small", stem="stride2", head_hidden_dim=512)
_PHOTO = ModelConfig(backbone="resnet18", head_hidden_dim=512)
_IMAGES, _BATCH = 2048, 256  # of CIFAR-sized images
_PHOTOS, _PHOTO_BATCH, _PHOTO_SIZE = 128, 32, 128
_AUGMENTED = 16  # photos, 224 pixels
_SGD = OptimConfig(name="sgd", weight_decay=1e-4)


def measure(rounds: int) -> dict[str, float | None]:
    """Return how many times as fast as lightly we are; None for all if it is not installed."""
    names = ("train", "train_photos", "embed", "augment_photos")
    try:
        import lightly  # noqa: F401
    except ImportError:
        return {f"{name}_over_lightly": None for name in names}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder, _PHOTOS)
        pairs = zip(
            names,
            (_training(), _training_on_photos(folder), _embedding(folder), _augmentation(folder)),
            strict=True,
        )
        figures: dict[str, float | None] = {}
        for figure, (images, ours, theirs) in pairs:
            seconds = medians({"ours": ours, "lightly": theirs}, rounds)
            figures[f"{figure}_over_lightly"] = seconds["lightly"] / seconds["ours"]
            figures[f"{figure}_images_per_second"] = images / seconds["ours"]
    return figures


Pair = tuple[int, Callable[[], object], Callable[[], object]]
"""Number of images, and what ours and lightly do with them."""


def _training() -> Pair:
    from benchmarks.lightly_simclr import Pictures, small_transform, training_epoch

    generator = np.random.default_rng(0)
    pixels = torch.from_numpy(generator.integers(0, 256, (_IMAGES, 3, 32, 32), dtype=np.uint8))
    augment = _small_augmentation()
    ours = _epoch(ArraySource("random", pixels), _SMALL, 32, _BATCH, augment)
    return _IMAGES, ours, training_epoch(Pictures(pixels), _SMALL, 32, _BATCH, small_transform(32))


def _training_on_photos(folder: Path) -> Pair:
    from benchmarks.lightly_simclr import photo_transform, training_epoch

    ours = _epoch(
        open_source(str(folder)), _PHOTO, _PHOTO_SIZE, _PHOTO_BATCH, _photo_augmentation()
    )
    transform = photo_transform(_PHOTO_SIZE)
    return _PHOTOS, ours, training_epoch(folder, _PHOTO, _PHOTO_SIZE, _PHOTO_BATCH, transform)


def _embedding(folder: Path) -> Pair:
    from benchmarks.lightly_simclr import embedding

    mean, std = AugmentConfig().mean, AugmentConfig().std
    encoder = Encoder(Description(_PHOTO, (), 3, _PHOTO_SIZE, mean, std)).eval()
    ours = partial(features_and_rows, encoder, open_source(str(folder)), -1)
    return _PHOTOS, ours, embedding(folder, _PHOTO, _PHOTO_SIZE)


def _augmentation(folder: Path) -> Pair:
    """Pair the augmentation of decoded photos, one view each."""
    from benchmarks.lightly_simclr import photo_transform

    pictures = [Image.open(path).convert("RGB") for path in sorted(folder.iterdir())[:_AUGMENTED]]
    pixels = torch.stack([whole_pixels(picture) for picture in pictures])
    maker = ViewMaker(_photo_augmentation(), 224)
    draws = Draws(0, 0, np.arange(_AUGMENTED), np.zeros(_AUGMENTED, dtype=np.int64))
    transform = photo_transform(224).transforms[0]

    def theirs() -> Tensor:
        return torch.stack([transform(picture) for picture in pictures])

    return _AUGMENTED, lambda: maker.from_images(pixels, draws), theirs


def _epoch(
    source: Source, model: ModelConfig, size: int, batch_size: int, augment: AugmentConfig
) -> Callable[[], None]:
    """Return a function that trains an epoch."""
    loader = Loader(source, batch_size, 0, _CPU)
    take = training_step("simclr", model, size, optim=_SGD)
    specs, epochs = [ViewSpec(ViewMaker(augment, size), 2)], count()

    def train() -> None:
        for batch in loader.epoch(next(epochs), specs):
            take(batch.views)

    return train


def _small_augmentation() -> AugmentConfig:
    return AugmentConfig(
        scale=(0.2, 1), brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, blur=0
    )


def _photo_augmentation() -> AugmentConfig:
    return AugmentConfig(
        scale=(0.08, 1), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, blur=0.5
    )
