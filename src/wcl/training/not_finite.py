"""Keeping the batch of a step whose loss, gradient or weights were not finite."""

import torch

from wcl.system.files import atomic_write
from wcl.training.setup import TrainingSetup


def keep_batch(setup: TrainingSetup, step: int) -> None:
    """Write the images of a step, counted from 1, and the weights into `not_finite.pt`.

    The views are made again: they depend on the seed, the epoch and the images alone. The weights
    are those before the step on a CPU; on a GPU, where losses are read now and then, some steps may
    lie between. If only the update of the step failed, they are those after it. Every process has
    its own part of the images; rank zero writes its part.
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
