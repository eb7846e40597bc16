"""Features of all images of a run without augmentation, by its current weights."""

import torch
from torch import Tensor

from wcl.data.plain_images import BATCH, plain_images
from wcl.distributed.world import World
from wcl.neighbors import FeatureBank
from wcl.system.errors import RunError
from wcl.system.progress import track
from wcl.training.setup import TrainingSetup


def plain_features(setup: TrainingSetup, world: World) -> FeatureBank:
    """Return a new bank with the features of all readable images.

    Raises:
        RunError: fewer than two images can be read.
    """

    def empty_bank() -> FeatureBank:
        folder = setup.folder.path if setup.config.crops.bank == "disk" else None
        return FeatureBank(len(setup.source), setup.encoder.feature_dim, folder, world)

    bank = world.run_on_all_ranks(empty_bank)
    fill_with_plain_features(bank, setup, world)
    return bank


def fill_with_plain_features(bank: FeatureBank, setup: TrainingSetup, world: World) -> None:
    """Store the features of all readable images in a bank.

    Every process computes an equal part; all of them must call this.

    Raises:
        RunError: fewer than two images can be read.
    """
    numbers, features = world.run_on_all_ranks(lambda: _local_features(setup, world))
    by_process = world.all_gather_object(numbers)
    if sum(map(len, by_process)) < 2:
        raise RunError(
            f"{setup.source.name}: fewer than two images can be read; `wcl data` shows why"
        )
    bank.store([each.numpy() for each in by_process], features.to(setup.encoder.device))


def _local_features(setup: TrainingSetup, world: World) -> tuple[Tensor, Tensor]:
    """Return numbers (n,) and features (n, D) of this process's part of the images."""
    images, encoder, needed = len(setup.source), setup.encoder, setup.encoder.description
    rows = range(images * world.rank // world.size, images * (world.rank + 1) // world.size)
    batches = plain_images(
        setup.source,
        needed.image_size,
        needed.channels,
        needed.levels,
        setup.config.num_workers,
        rows,
    )
    if world.is_rank_zero:
        text = f"computing features of {len(rows):,} images"
        batches = iter(track(batches, text, -(-len(rows) // BATCH)))
    parts = [(numbers, encoder.embed(pixels)) for pixels, numbers in batches]
    if not parts:
        return torch.empty(0, dtype=torch.long), torch.empty(0, encoder.feature_dim)
    numbers, features = zip(*parts, strict=True)
    return torch.cat(numbers), torch.cat(features)
