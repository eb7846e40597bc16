"""Saving the batch of a step whose loss, gradient or weights are not finite."""

import torch

from wcl.system.files import atomic_write
from wcl.training.setup import TrainingSetup


def save_batch(setup: TrainingSetup, step: int) -> None:
    """Write the images of a step, counted from 1, and the weights into `not_finite.pt`.

    The views are made again: they depend only on the seed, the epoch and the images. On a CPU the
    weights are those before the step; on a GPU, where losses are read now and then, they may be
    those of a later step; if the update itself failed, those after the step. Rank 0 writes its
    part of the batch.
    """
    if not setup.sharding.world.is_rank_zero:
        return
    epoch, in_epoch = divmod(step - 1, setup.steps_per_epoch)
    batch = next(iter(setup.loader.epoch(epoch, setup.view_specs(epoch), start=in_epoch)))
    content = {
        "step": step,
        "epoch": epoch,
        "images": torch.from_numpy(batch.global_index),
        "own_images": torch.from_numpy(batch.index),
        "views": [views.cpu() for views in batch.views],
        "method": setup.method.state_dict(),
    }
    with atomic_write(setup.folder.not_finite) as unfinished:
        torch.save(content, unfinished)
