"""The number of epochs of a run for a fixed time.

The estimate of a step plans a number before the first step, and the time of the first epoch settles
it. The first epoch of most runs lies in the linear warm-up of the learning rate and does not depend
on how many follow, so the run has the weights of one that was given that number at once.
"""

import dataclasses
import math
import time

from wcl.distributed.world import World
from wcl.system.errors import InputError
from wcl.system.progress import log
from wcl.system.units import duration
from wcl.training.monitor import Monitor
from wcl.training.setup import TrainingSetup, record_length

# Small networks are up to twice as fast as estimated, so only more than that is refused.
_CLEARLY_MORE = 2.0
# Share of the planned epochs that the warm-up takes at most, or one epoch. A warm-up may be half of
# a run, so this one stays as it is unless more than a third of the planned epochs are dropped.
_WARMUP = 1 / 3


def plan_epochs(setup: TrainingSetup, step_seconds: float, world: World) -> None:
    """Give a new run with `minutes` about as many epochs as fit. All processes must call this.

    Args:
        setup: the run.
        step_seconds: estimated time of a step; 0 if there is none, as in a run that was stopped in
            its first epoch, which keeps the number planned before.
        world: the processes, of which rank 0 decides.

    Raises:
        InputError: a single epoch clearly takes longer.
    """
    config = setup.config
    time_left, seconds = _of_rank_zero(setup, step_seconds * setup.steps_per_epoch, world)
    if not seconds:
        return
    if seconds > time_left:
        epoch = f"about {duration(seconds)}" if seconds >= 1 else "almost a second"
        problem = f"an epoch takes {epoch}, and a run at least one; "
        problem += _remedy(setup, seconds, time_left)
        if seconds > _CLEARLY_MORE * time_left:
            raise InputError(f"--minutes: {config.minutes:g} are too few: {problem}")
        log(f"warning: {problem}")
    epochs = max(1, int(time_left / seconds))
    warmup = min(config.optim.warmup_epochs, max(1.0, round(epochs * _WARMUP, 2)))
    optim = dataclasses.replace(config.optim, warmup_epochs=warmup)
    setup.change_length(dataclasses.replace(config, epochs=epochs, optim=optim))


def settle_epochs(
    setup: TrainingSetup, epoch_seconds: float, monitor: Monitor, world: World
) -> None:
    """Give a run with `minutes` its final number of epochs, after the first and by its time.

    All processes must call this. The run is then like any other with that number: the settings have
    no `minutes` any more, so a run that is resumed or repeated measures nothing.
    """
    minutes = setup.config.minutes
    time_left, seconds = _of_rank_zero(setup, epoch_seconds, world)
    epochs = 1 + max(0, int(time_left / seconds))
    setup.change_length(dataclasses.replace(setup.config, epochs=epochs, minutes=0.0))
    monitor.set_epochs(epochs)
    monitor.log(f"{epochs} epoch{' fits' if epochs == 1 else 's fit'} into {minutes:g} minutes")
    world.run_on_all_ranks(lambda: record_length(setup) if world.is_rank_zero else None)


def _of_rank_zero(setup: TrainingSetup, epoch_seconds: float, world: World) -> tuple[float, float]:
    """Return the seconds that are left to the run, and those of an epoch, as rank 0 sees them."""
    before = 0.0 if setup.saved is None else float(setup.saved["monitor"]["seconds"])
    time_left = 60 * setup.config.minutes - before - (time.monotonic() - setup.began)
    return world.all_gather_object((time_left, epoch_seconds))[0]


def _remedy(setup: TrainingSetup, seconds: float, time_left: float) -> str:
    """Return what lets an epoch fit into the time."""
    minutes = setup.config.minutes + (seconds - time_left) / 60
    enough = f"--minutes {math.ceil(100 * minutes) / 100:g}"
    images = int(len(setup.source) * time_left / seconds)
    if images < setup.config.batch_size:
        return f"use {enough} or more, or a smaller network or --image_size"
    rounded = images - images % 10 ** max(0, len(str(images)) - 2)
    return f"use --limit {rounded}, or {enough} or more"
