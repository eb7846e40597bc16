"""The learning-rate schedule of a run, also of one that is resumed with other epochs.

Everything that depends on the length of a run (the cosine, a method's `progress`, fractions of the
run) is a function of the step and the number of all steps. With other epochs it therefore
continues as if the run had always been that long; `optim.extension` can restart the cosine instead.
"""

from dataclasses import dataclass, replace
from typing import Any

from wcl.config import PretrainConfig
from wcl.system.errors import InputError
from wcl.system.progress import log
from wcl.training.optimizers import lr_at, peak_lr


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step."""

    peak: float
    warmup: int
    """Steps of the linear warm-up."""
    total: int
    """Steps of the whole run."""
    restart: int = 0
    """Step at which a new cosine began, without warm-up; 0 for none."""

    def lr(self, step: int) -> float:
        """Return the learning rate of a step, from 0.

        >>> [Schedule(1.0, 2, 6).lr(step) for step in (0, 2, 4)]
        [0.5, 1.0, 0.5]
        >>> [Schedule(1.0, 2, 10, restart=6).lr(step) for step in (6, 8)]
        [1.0, 0.5]
        """
        if self.restart:
            return lr_at(step - self.restart, self.peak, 0, self.total - self.restart)
        return lr_at(step, self.peak, self.warmup, self.total)


def run_schedule(
    config: PretrainConfig, steps_per_epoch: int, saved: dict[str, Any] | None
) -> Schedule:
    """Return the schedule of a run.

    Args:
        config: settings of the run.
        steps_per_epoch: number of steps of an epoch.
        saved: the checkpoint that it continues from, perhaps of a run of another length.

    Raises:
        InputError: the run has done more epochs than it is given.
    """
    restart = 0
    if saved is not None:
        step, restart = int(saved["step"]), int(saved.get("restart", 0))
        if is_extended(config, saved):
            if step > config.epochs * steps_per_epoch:
                raise InputError(
                    f"--epochs: {config.epochs} are fewer than the {-(-step // steps_per_epoch)} "
                    "that the run has begun; give at least as many, or leave it out to resume"
                )
            if config.optim.extension == "restart":
                restart = step
    return schedule_of(config, steps_per_epoch, restart)


def schedule_of(config: PretrainConfig, steps_per_epoch: int, restart: int = 0) -> Schedule:
    """Return the schedule of a run, with a new cosine at the step `restart` if it is not 0."""
    total = config.epochs * steps_per_epoch
    warmup = min(round(config.optim.warmup_epochs * steps_per_epoch), total // 2)
    return Schedule(peak_lr(config.optim, config.batch_size), warmup, total, restart)


def with_recorded_length(config: PretrainConfig, recorded: dict[str, Any]) -> PretrainConfig:
    """Return the settings of a resumed run for a fixed time with the epochs that it recorded.

    They are settled once and for all after the first epoch, when the recorded `minutes` become 0.
    """
    if not config.minutes:
        return config
    epochs, optim = recorded.get("epochs", config.epochs), recorded.get("optim", {})
    minutes = config.minutes
    if not recorded.get("minutes"):
        log(f"--minutes has no effect on a run that has its {epochs} epochs; use --epochs")
        minutes = 0.0
    warmup = optim.get("warmup_epochs", config.optim.warmup_epochs)
    optim = replace(config.optim, warmup_epochs=warmup)
    return replace(config, epochs=epochs, minutes=minutes, optim=optim)


def is_extended(config: PretrainConfig, saved: dict[str, Any] | None) -> bool:
    """Return whether a run continues with more or fewer epochs than its checkpoint was to have."""
    return saved is not None and saved["config"]["epochs"] != config.epochs


def describe_extension(
    config: PretrainConfig, schedule: Schedule, saved: dict[str, Any] | None
) -> str:
    """Describe how the schedule of a run changes at its checkpoint; empty if it does not."""
    if saved is None or not is_extended(config, saved):
        return ""
    before, step = saved["config"]["epochs"], int(saved["step"])
    verb = "extended" if config.epochs > before else "shortened"
    rate = f"{schedule.lr(step):.3g} (its peak is {schedule.peak:.3g})"
    if config.optim.extension == "restart":
        course = f"a new cosine begins, at a learning rate of {rate}"
    else:
        course = f"the learning rate goes on as in a run of {config.epochs} epochs, at {rate}"
    setting = f"--optim.extension {config.optim.extension}"
    return f"{verb} from {before} to {config.epochs} epochs at step {step}; {setting}: {course}"
