"""What is kept of a step whose loss, gradient or weights were not finite numbers."""

import torch

from wcl.system.files import atomic_write
from wcl.training.setup import TrainingSetup


def keep_batch(run: TrainingSetup, step: int) -> None:
    """Write the images of a step, from 1, and the weights into the run's `not_finite.pt`.

    The views are made again: they depend on the seed, the epoch and the images alone. The weights
    are those that the step began with, on a CPU; on a GPU, where losses are read now and then, some
    steps may lie between. Where only the step's update spoiled them, they are those after it. Every
    process has its own share of the images; the first writes its.
    """
    if not run.sharding.world.is_rank_zero:
        return
    epoch, place = divmod(step - 1, run.loader.steps_per_epoch)
    batch = next(iter(run.loader.epoch(epoch, run.kinds(epoch), start=place)))
    kept = {
        "step": step,
        "epoch": epoch,
        "images": torch.from_numpy(batch.everyone),
        "own_images": torch.from_numpy(batch.index),
        "views": [views.cpu() for views in batch.views],
        "encoder": run.encoder.state_dict(),
    }
    with atomic_write(run.folder.not_finite) as unfinished:
        torch.save(kept, unfinished)
