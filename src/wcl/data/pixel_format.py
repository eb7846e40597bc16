"""Channels of a source's images and range of their values: what they are, and what is wanted."""

from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wcl.data.decode import MissingPackage, UnreadableImage, channel_count, deep_values
from wcl.data.levels import Levels
from wcl.data.memory import in_memory
from wcl.data.source import ArraySource, Source
from wcl.ops.randomness import seed_of
from wcl.system.errors import InputError
from wcl.system.progress import track

Values = npt.NDArray[Any]
PERCENTILES = 0.1, 99.9
"""Percentiles of the values that become black and white: a few hot pixels do not matter."""
_PROBED = 16
_MEASURED, _VALUES_EACH = 256, 2**14  # images, and values of each channel of an image


def with_own_channels(source: Source) -> Source:
    """Set the number of channels of a source if its images are neither gray nor color.

    A few of the images are compared. Others with another number are unreadable.

    Raises:
        InputError: they have different numbers, or a package that their format needs is missing.
    """
    if isinstance(source, ArraySource):
        return source
    first: dict[int, str] = {}
    for index in range(0, len(source), max(1, len(source) // _PROBED)):
        try:
            first.setdefault(channel_count(source.image(index)), source.where(index))
        except MissingPackage as error:
            raise InputError(f"{source.where(index)}: {error}") from error
        except UnreadableImage:
            continue
    if len(first) > 1:
        (number, place), (other, other_place) = sorted(first.items())[:2]
        raise InputError(
            f"{source.name}: all images must have the same number of channels, but {place} has "
            f"{number} and {other_place} {other}; give them separately"
        )
    source.channels = next(iter(first), source.channels)
    return source


def measured_levels(source: Source, seed: int) -> Levels:
    """Return the range of the values of images of more than 8 bits; () if there are none.

    Returns:
        One pair for gray and color images. Other channels, such as stains, have a pair each.
    """
    if isinstance(source, ArraySource):
        return ()
    random = np.random.default_rng(seed_of(seed, "levels"))
    some = np.sort(random.permutation(len(source))[:_MEASURED])
    samples: list[list[Values]] = [[] for _ in range(source.channels)]
    for index in track(some.tolist(), "measuring the range of values"):
        try:
            found = deep_values(source.image(index))
        except UnreadableImage:
            continue
        for channel, values in zip(samples, found, strict=False):
            drawn = values.ravel()
            if drawn.size > _VALUES_EACH:
                drawn = drawn[random.integers(drawn.size, size=_VALUES_EACH)]
            channel.append(drawn[np.isfinite(drawn)])
    if source.channels in (1, 3):
        samples = [[drawn for channel in samples for drawn in channel]]
    return tuple(map(_range, samples)) if any(samples) else ()


def _range(samples: list[Values]) -> tuple[float, float]:
    values = np.concatenate([*samples, np.empty(0)])
    if values.size == 0:
        return 0.0, 1.0
    black, white = np.percentile(values, PERCENTILES, method="nearest").tolist()
    return black, max(white, black + 1e-6 * max(1.0, abs(black)))


def with_format(source: Source, channels: int, levels: Levels = ()) -> Source:
    """Convert a source to color (3 channels) or gray (1), and set the range of deep images.

    Raises:
        InputError: its images have another number of channels, which cannot be converted.
    """
    if source.channels != channels and not {source.channels, channels} <= {1, 3}:
        raise InputError(
            f"{source.name}: its images have {source.channels} channels, but the encoder takes "
            f"{channels}; use an encoder that was trained on such images"
        )
    if (source.channels, source.levels) == (channels, levels):
        return source
    if not isinstance(source, ArraySource):
        source.channels, source.levels = channels, levels  # for when files are decoded
        return source
    converted = copy(source)
    if source.origin is not None and source.levels != levels:
        again = in_memory(with_format(source.origin, source.channels, levels))
        assert isinstance(again, ArraySource)
        converted.pixels, converted.levels = again.pixels, levels
    if source.channels != channels:
        converted.channels = channels
        converted.pixels = _with_channels(converted.pixels, channels)
    return converted


def _with_channels(pixels: Tensor, channels: int) -> Tensor:
    if channels == 3:
        return pixels.expand(-1, 3, -1, -1)
    luma = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    return (pixels.float() * luma).sum(dim=1, keepdim=True).round().to(torch.uint8)
