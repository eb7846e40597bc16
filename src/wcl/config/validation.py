"""Settings that no run can have, each refused with one line that names it."""

from dataclasses import asdict
from importlib.util import find_spec

from wcl.config import PretrainConfig, flat
from wcl.config.bounds import check_bounds
from wcl.system.errors import InputError
from wcl.system.machine import MAX_WORKERS, best_device

MAX_LR = 1e38  # which a float32 can be
_AT_LEAST = {
    "epochs": 1,
    "batch_size": 2,
    "micro_batch_size": 0,
    "devices": 1,
    "image_size": 1,
    "limit": 0,
    "classes": 0,
    "mild_augment_epochs": 0,
    "save_every": 1,
    "max_unreadable_fraction": 0,
    "threads": 0,
    "num_workers": -1,
    "model.head_hidden_dim": 1,
    "model.head_out_dim": 1,
    "crops.count": 0,
    "crops.size": 0,
    "crops.warmup": 0,
    "crops.cache": 0,
    "optim.lr": 0,
    "optim.momentum": 0,
    "optim.weight_decay": 0,
    "optim.warmup_epochs": 0,
    "log.every": 1,
    "log.health": 0,
    "log.knn_every": 0,
    "augment.brightness": 0,
    "augment.contrast": 0,
    "augment.saturation": 0,
    "augment.rotate": 0,
    "augment.shear": 0,
    "augment.shift": 0,
    "augment.noise": 0,
}
_AT_MOST = {
    "batch_size": 2**24,
    "image_size": 4096,
    "devices": 1024,
    "threads": 4096,
    "num_workers": MAX_WORKERS,
    "model.head_hidden_dim": 2**20,
    "model.head_out_dim": 2**20,
}
_PROBABILITIES = ("flip", "jitter", "grayscale", "blur", "solarize")
# Ranges: the least that the lower end may be (itself excluded), the most that the upper may be.
_RANGES = {
    "scale": (0.0, 1.0),
    "ratio": (0.0, float("inf")),
    "zoom": (0.0, float("inf")),
    "blur_sigma": (0.0, float("inf")),
}


def check(config: PretrainConfig) -> None:
    """Raise InputError for the first setting that cannot be.

    >>> check(PretrainConfig(data="photos", out="runs/a", batch_size=1))
    Traceback (most recent call last):
    wcl.system.errors.InputError: --batch_size: must be at least 2, not 1
    """
    if not config.data:
        raise InputError(
            "--data: say where the images are: a folder, a parquet file, cifar10, digits …"
        )
    if not config.out:
        raise InputError("--out: name a folder for the run, such as --out runs/first")
    check_seed(config.seed)
    values = flat(asdict(config))
    for name, least in _AT_LEAST.items():
        if values[name] < least:
            raise InputError(f"--{name}: must be at least {least}, not {values[name]}")
    for name, most in _AT_MOST.items():
        if values[name] > most:
            raise InputError(f"--{name}: must be at most {most}, not {values[name]}")
    check_bounds(config)
    most_rate = MAX_LR if config.optim.lr_scaling == "constant" else MAX_LR / config.batch_size
    if config.optim.lr > most_rate:
        raise InputError(f"--optim.lr: must be at most {most_rate:g}, not {config.optim.lr:g}")
    if config.log.health == 1:
        raise InputError("--log.health: must be 0, or at least 2")
    if config.micro_batch_size == 1:
        raise InputError("--micro_batch_size: must be 0, or at least 2")
    if config.micro_batch_size and config.batch_size % config.micro_batch_size:
        raise InputError(
            f"--micro_batch_size: a batch of {config.batch_size} images does not divide into "
            f"pieces of {config.micro_batch_size}"
        )
    if config.timeout_minutes <= 0:
        raise InputError(
            f"--timeout_minutes: must be more than 0 minutes, not {config.timeout_minutes:g}"
        )
    if config.model.head_layers not in (2, 3):
        raise InputError(f"--model.head_layers: must be 2 or 3, not {config.model.head_layers}")
    _check_augmentation(config)
    if config.crops.count:
        _check_crops(config)
    if config.log.wandb and find_spec("wandb") is None:
        raise InputError("--log.wandb: Weights & Biases is not installed; pip install wandb")
    if config.precision == "16-mixed" and best_device(config.device) != "cuda":
        raise InputError("--precision: 16-mixed needs a CUDA GPU; use bf16-mixed or 32-true")


def check_seed(seed: int) -> None:
    """Raise InputError if generators of random numbers cannot be given this seed."""
    if not 0 <= seed < 2**63:
        raise InputError(f"--seed: must be between 0 and {2**63 - 1}, not {seed}")


def _check_augmentation(config: PretrainConfig) -> None:
    augment = config.augment
    for name in _PROBABILITIES:
        if not 0 <= getattr(augment, name) <= 1:
            raise InputError(f"--augment.{name}: a probability is between 0 and 1")
    for name, (above, most) in _RANGES.items():
        _check_range(f"augment.{name}", getattr(augment, name), above, most)
    if not 0 <= augment.hue <= 0.5:
        raise InputError(f"--augment.hue: must be between 0 and 0.5, not {augment.hue}")
    if min(augment.std, default=0) <= 0:
        raise InputError("--augment.std: must be above 0 for every channel")


def _check_crops(config: PretrainConfig) -> None:
    crops = config.crops
    _check_range("crops.scale", crops.scale, *_RANGES["scale"])
    if crops.size > config.image_size:
        raise InputError(
            f"--crops.size: crops of {crops.size} pixels are larger than the views of "
            f"{config.image_size}; make it {max(1, config.image_size // 2)} or so"
        )
    if crops.neighbors and crops.warmup > config.epochs:
        raise InputError(
            f"--crops.warmup: {crops.warmup:g} epochs are more than the run's {config.epochs}; "
            "a share of the run such as 0.25 fits any length"
        )


def _check_range(name: str, ends: tuple[float, float], above: float, most: float) -> None:
    low, high = ends
    if not above < low <= high <= most:
        raise InputError(f"--{name}: [{low}, {high}] is not a range that can be drawn from")
