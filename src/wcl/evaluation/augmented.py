"""Features of augmented views, made as the encoder's run made them."""

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, PretrainConfig
from wcl.config.layering import settings
from wcl.data import Source
from wcl.data.loader import Loader
from wcl.evaluation.features import none_can_be_read
from wcl.methods import method_settings
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError, RunError
from wcl.system.progress import track
from wcl.system.run_folder import RunFolder
from wcl.training.views import view_specs

PIXELS = "pixels"
"""Name of the raw pixels among networks."""
_BATCH = 128
_PIXEL_SIDE = 16


def run_settings(encoder: Encoder) -> PretrainConfig:
    """Return the settings of an encoder's run, or what its description says of them.

    Raises:
        InputError: the settings cannot be read, or the run's method cannot be imported.
    """
    file = RunFolder(encoder.home).config if encoder.home else None
    if file is not None and file.is_file():
        return _read_settings(file, file.stat().st_mtime_ns)
    described = encoder.description
    augment = AugmentConfig(scale=described.scale, flip=described.flip)
    augment.mean, augment.std = described.mean, described.std
    return PretrainConfig(method="simclr", loss=method_settings("simclr")(), augment=augment)


@lru_cache(maxsize=1)  # the parts of an evaluation ask for the same
def _read_settings(file: Path, modified: int) -> PretrainConfig:
    return settings("", {}, method_settings, files=[file])


@torch.no_grad()
def view_features(
    encoders: Mapping[str, Encoder],
    source: Source,
    config: PretrainConfig,
    seed: int = 0,
    num_workers: int = -1,
) -> dict[str, Tensor]:
    """Compute features of the two full views of each image, the same views for all networks.

    Args:
        encoders: by name; all take images of the same size and channels.
        source: the images, with the channels of the encoders.
        config: settings of the run, whose augmentation makes the views.
        seed: of the views.
        num_workers: processes that decode photos.

    Returns:
        (2, n, D) features of the readable images by the name of each encoder, and those of the
        pixels, reduced to 16×16, by `PIXELS`.

    Raises:
        InputError: fewer than two images can be read.
        RunError: features are not finite.
    """
    first = next(iter(encoders.values()))
    config = dataclasses.replace(
        config,
        image_size=first.description.image_size,
        crops=dataclasses.replace(config.crops, count=0),
    )
    specs = view_specs(config, source.channels, count=2)
    size = min(_BATCH, len(source))
    # The last batch is filled up with the first images, whose features are the same again.
    batches = np.resize(np.arange(len(source)), (-(-len(source) // size), size))
    loader = Loader(source, size, seed, first.device, num_workers)
    parts: dict[str, list[Tensor]] = {name: [] for name in (*encoders, PIXELS)}
    rows = []
    text = f"computing features of {len(source):,} images in two views"
    for batch in track(loader.batches(0, list(batches), specs), text, len(batches)):
        views = [view for of_spec in batch.views for view in of_spec]
        for name, encoder in encoders.items():
            parts[name].append(torch.stack([_features(encoder, view) for view in views]))
        parts[PIXELS].append(torch.stack([_pixels(specs[0].maker, view) for view in views]))
        rows.append(torch.from_numpy(batch.index))
    index, kept = np.unique(torch.cat(rows).numpy(), return_index=True)
    if not len(index):
        raise InputError(f"{source.name}: {none_can_be_read(len(source))}")
    if len(index) < 2:
        raise InputError(f"{source.name}: only one image can be read; at least two are needed")
    values = {name: torch.cat(part, dim=1)[:, kept] for name, part in parts.items()}
    if not all(bool(one.isfinite().all()) for one in values.values()):
        raise RunError("the encoder's features are not finite; its training must have diverged")
    return values


def _features(encoder: Encoder, views: Tensor) -> Tensor:
    features: Tensor = encoder.backbone(views.contiguous(memory_format=torch.channels_last))
    return features.float().cpu()


def _pixels(maker: ViewMaker, views: Tensor) -> Tensor:
    """Return pixels as rows, at most 16×16 of each channel."""
    pixels = maker.to_pixels(views).float().cpu()
    return F.adaptive_avg_pool2d(pixels, min(_PIXEL_SIDE, maker.size)).flatten(1)
