"""How an evaluation prepares images, where it differs from pretraining."""

import copy
import dataclasses
from typing import Any

from wcl.config import EvalConfig
from wcl.models.encoder import Encoder, check_image_size


def with_preprocessing(encoder: Encoder, config: EvalConfig) -> Encoder:
    """Return the encoder with the image size and the crop scale of an evaluation.

    The weights are shared with the given encoder, which stays as it is.

    Raises:
        InputError: the backbone cannot take images of that size.
    """
    described = encoder.description
    image_size = config.image_size or described.image_size
    scale = getattr(config, "scale", None) or described.scale  # not all protocols train on crops
    if image_size == described.image_size and scale == described.scale:
        return encoder
    if image_size != described.image_size:
        check_image_size(encoder, image_size, "--image_size")
    prepared = copy.copy(encoder)
    prepared.description = dataclasses.replace(described, image_size=image_size, scale=tuple(scale))
    return prepared


def preprocessing(encoder: Encoder) -> dict[str, Any]:
    """Return the image size and the crop scale of an evaluation, for its result."""
    described = encoder.description
    return {"image_size": described.image_size, "scale": list(described.scale)}
