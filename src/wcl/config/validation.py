"""Checks of a run's settings before anything is computed."""

from importlib.util import find_spec

from wcl.config import CropsConfig, PretrainConfig
from wcl.config.bounds import check_bounds
from wcl.system.errors import InputError
from wcl.system.machine import best_device

MAX_LR = 1e38  # float32 ends at 3.4e38


def check(config: PretrainConfig) -> None:
    """Raise InputError for the first setting that is impossible.

    >>> check(PretrainConfig(data="photos", out="runs/a", batch_size=1))
    Traceback (most recent call last):
    wcl.system.errors.InputError: --batch_size: must be between 2 and 16777216, not 1
    """
    if not config.data:
        raise InputError("--data: name the images: a folder, a parquet file, cifar10, digits …")
    if not config.out:
        raise InputError("--out: name a folder for the run, such as --out runs/first")
    check_bounds(config)
    max_lr = MAX_LR if config.optim.lr_scaling == "constant" else MAX_LR / config.batch_size
    if config.optim.lr > max_lr:
        raise InputError(f"--optim.lr: must be at most {max_lr:g}, not {config.optim.lr:g}")
    if config.log.health == 1:
        raise InputError("--log.health: must be 0, or at least 2")
    if config.micro_batch_size == 1:
        raise InputError("--micro_batch_size: must be 0, or at least 2")
    if config.micro_batch_size and config.batch_size % config.micro_batch_size:
        raise InputError(
            f"--micro_batch_size: a batch of {config.batch_size} images does not divide into "
            f"pieces of {config.micro_batch_size}"
        )
    if config.crops.count:
        _check_crops(config.crops, config)
    if config.log.wandb and find_spec("wandb") is None:
        raise InputError("--log.wandb: Weights & Biases is not installed; pip install wandb")
    if config.precision == "16-mixed" and best_device(config.device) != "cuda":
        raise InputError("--precision: 16-mixed needs a CUDA GPU; use bf16-mixed or 32-true")


def _check_crops(crops: CropsConfig, config: PretrainConfig) -> None:
    if crops.size > config.image_size:
        raise InputError(
            f"--crops.size: crops of {crops.size} pixels are larger than the views of "
            f"{config.image_size}; use about {max(1, config.image_size // 2)}"
        )
    if crops.neighbors and crops.warmup > 1 and config.minutes:
        raise InputError(
            f"--crops.warmup: {crops.warmup:g} epochs may be more than fit into --minutes; use a "
            "fraction of the run such as 0.25"
        )
    if crops.neighbors and crops.warmup > config.epochs and not config.minutes:
        raise InputError(
            f"--crops.warmup: {crops.warmup:g} epochs are more than the {config.epochs} of the "
            "run; a fraction of the run such as 0.25 fits any length"
        )
