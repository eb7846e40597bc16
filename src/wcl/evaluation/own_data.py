"""The data of a run, for an evaluation that names no others."""

import dataclasses
from typing import TypeVar

from wcl.config import EvalConfig
from wcl.config.run_config import read_config
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError
from wcl.system.run_folder import RunFolder

T = TypeVar("T", bound=EvalConfig)


def with_data(config: T, encoder: Encoder, labeled: bool = True) -> T:
    """Return the settings with the images, and their classes, that the encoder was trained on.

    Settings that name images are returned as they are.

    Args:
        config: the settings.
        encoder: the encoder.
        labeled: whether the images need labels, for the message.

    Raises:
        InputError: the encoder does not belong to the folder of a run.
    """
    if config.data:
        return config
    file = RunFolder(encoder.home).config if encoder.home else None
    recorded = read_config(file) if file and file.is_file() else {}
    data, classes = recorded.get("data"), recorded.get("classes", 0)
    if not data or not isinstance(data, str) or not isinstance(classes, int):
        raise InputError(f"--data: give the {'labeled ' if labeled else ''}images")
    return dataclasses.replace(config, data=data, classes=config.classes or classes)
