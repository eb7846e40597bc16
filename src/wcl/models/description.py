"""The description in every encoder file: how to rebuild the encoder and how to feed it."""

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path

from wcl import __version__
from wcl.config import ModelConfig
from wcl.data.levels import Levels
from wcl.system.errors import InputError

_LARGEST = {"channels": 64, "image_size": 4096, "epoch": 2**31, "feature_dim": 2**20}


@dataclass(frozen=True)
class Description:
    """Architecture, input format and origin of an encoder."""

    model: ModelConfig
    heads: tuple[str, ...]
    """Names of the projection heads."""
    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    method: str = "none"
    epoch: int = 0
    data: str = ""
    version: str = __version__
    scale: tuple[float, float] = (0.08, 1.0)
    """Crop scale of pretraining, as in `AugmentConfig`; classifiers are trained with the same."""
    flip: float = 0.5
    levels: Levels = ()
    """Range of the values of images of more than 8 bits, as they were scaled in pretraining."""
    weights: str = ""
    """Name of the weights that training started from; empty for random ones."""
    weights_sha256: str = ""
    """Their SHA-256: of a file, or of the tensors if timm downloaded them."""
    sha256: str = field(default="", compare=False)
    """Hash of the backbone's weights in the file; empty for an encoder that was never saved."""
    feature_dim: int = field(default=0, compare=False)
    """Dimension of the features; 0 for an encoder that was never saved."""


def parse_description(text: str, file: Path) -> Description:
    """Parse the JSON description of an encoder file. Unknown entries are ignored.

    Raises:
        InputError: the text is not a description, or describes an impossible encoder.
    """
    try:
        values = json.loads(text)
        known = {field.name for field in fields(Description)}
        values = {name: value for name, value in values.items() if name in known}
        values["model"] = ModelConfig(**values["model"])
        for name in {"heads", "mean", "std", "scale"} & values.keys():
            values[name] = tuple(values[name])
        if "levels" in values:
            values["levels"] = tuple(tuple(pair) for pair in values["levels"])
        description = Description(**values)
        if not _is_possible(description):
            raise ValueError
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: damaged, or written by another version of wcl") from error
    return description


def _is_possible(description: Description) -> bool:
    bounded = all(
        type(value := getattr(description, name)) is int and 0 <= value <= largest
        for name, largest in _LARGEST.items()
    )
    per_channel = len(description.mean) == len(description.std) == description.channels
    levels = description.levels
    numbers = [*description.mean, *description.std, *description.scale, description.flip]
    numbers += [value for pair in levels for value in pair]
    finite = all(type(value) in (int, float) and math.isfinite(value) for value in numbers)
    return (
        bounded
        and description.image_size > 0
        and per_channel
        and finite
        and min(description.std) > 0
        and len(levels) in (0, 1, description.channels)
        and all(black < white for black, white in levels)
    )
