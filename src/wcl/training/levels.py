"""The range of values of a run's images: measured when it starts, recorded in its settings."""

import dataclasses
from typing import Any

from wcl.config import PretrainConfig
from wcl.data import Source, measured_levels
from wcl.data.levels import Levels, described_levels
from wcl.data.pixel_format import PERCENTILES
from wcl.system.errors import InputError
from wcl.system.progress import log


def with_measured_levels(config: PretrainConfig, source: Source) -> PretrainConfig:
    """Return the settings with the range of values of images of more than 8 bits.

    The range and what else is special about the images are logged.

    Raises:
        InputError: the settings have a range that is impossible.
    """
    if source.channels not in (1, 3):
        log(
            f"{config.data}: {source.channels} channels; saturation, hue and grayscale, which are "
            "defined for RGB, are left out of the augmentation"
        )
    if config.levels:
        _check(config.levels, source.channels)
        return config
    levels = measured_levels(source, config.seed)
    if levels:
        low, high = PERCENTILES
        log(
            f"{config.data}: images of more than 8 bits; black and white are "
            f"{described_levels(levels)}, the percentiles {low:g} and {high:g} of a sample; "
            "--levels sets others"
        )
    return dataclasses.replace(config, levels=levels)


def with_recorded_levels(config: PretrainConfig, recorded: dict[str, Any]) -> PretrainConfig:
    """Return the settings with the range that the run recorded, unless another is given."""
    if config.levels:
        return config
    levels = tuple((float(black), float(white)) for black, white in recorded.get("levels", ()))
    return dataclasses.replace(config, levels=levels)


def _check(levels: Levels, channels: int) -> None:
    if len(levels) not in (1, channels):
        raise InputError(
            f"--levels: give one pair [black, white], or one for each of the {channels} channels"
        )
    for black, white in levels:
        if not -1e38 < black < white < 1e38:
            raise InputError(f"--levels: black must be below white, not [{black:g}, {white:g}]")
