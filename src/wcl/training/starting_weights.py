"""The pretrained weights that a run starts from, and the record of their hash."""

import dataclasses
from typing import Any

from wcl.config import PretrainConfig
from wcl.models.encoder import Encoder, check_image_size
from wcl.models.pretrained import input_format, load_weights, naming_setting
from wcl.system.errors import InputError
from wcl.system.progress import log


def load_starting_weights(encoder: Encoder, config: PretrainConfig) -> str:
    """Load the weights that a run starts from, and return their SHA-256."""
    # Before position embeddings are resized to it.
    check_image_size(encoder, config.image_size, "--image_size")
    with naming_setting():
        given = input_format(config.model)
        for name in ("mean", "std"):
            values, expected = getattr(config.augment, name), getattr(given, name)
            if len(values) != given.channels:
                raise InputError(
                    f"--augment.{name}: {len(values)} numbers, but the weights take "
                    f"{given.channels} channels; without it, that of the weights is used"
                )
            if values != expected:
                log(f"--augment.{name}: {values}, but the weights were trained with {expected}")
        remedy = ", or load those that fit with --model.weights_partial true"
        return load_weights(
            encoder.backbone, config.model, given.channels, config.image_size, remedy
        )


def with_sha256(config: PretrainConfig, sha256: str) -> PretrainConfig:
    """Return the settings with the hash of the weights."""
    return dataclasses.replace(
        config, model=dataclasses.replace(config.model, weights_sha256=sha256)
    )


def with_recorded_sha256(config: PretrainConfig, recorded: dict[str, Any]) -> PretrainConfig:
    """Return the settings with the hash that the run recorded, unless another is given.

    The command line of a run that torchrun restarts does not have it.
    """
    model = recorded.get("model")
    sha256 = model.get("weights_sha256", "") if isinstance(model, dict) else ""
    return config if config.model.weights_sha256 else with_sha256(config, str(sha256))
