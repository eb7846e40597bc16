"""Weights that timm downloads, and what it knows about them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from wcl.models.backbones import check_timm_name, timm_options
from wcl.system.errors import InputError
from wcl.system.paths import one_line
from wcl.system.progress import console


def download(name: str, channels: int, image_size: int) -> dict[str, Tensor]:
    """Return the weights that timm has for a model; it downloads them once.

    Raises:
        InputError: there are none, or they cannot be downloaded.
    """
    import timm  # here, because networks of our own do without it, and it takes a second

    pretrained = pretrained_cfg(name)
    if not pretrained or not pretrained.has_weights:
        raise InputError(f"timm has no weights for {name}; give a file, or name another model")
    with (
        console().status(f"getting the weights of {name} through timm"),
        torch.random.fork_rng(devices=[]),
        _only_errors("huggingface_hub", "timm"),
    ):
        try:
            options = timm_options(name, channels, image_size)
            return timm.create_model(name, pretrained=True, **options).state_dict()
        except Exception as error:  # of timm, the hub's client or the network
            reason = one_line((str(error).splitlines() or [type(error).__name__])[0])
            raise InputError(
                f"the weights of {name} cannot be downloaded ({reason}); connect to the internet, "
                "or give a file that has them"
            ) from error


@contextmanager
def _only_errors(*names: str) -> Iterator[None]:
    """Silence the warnings of packages, such as those about every attempt to connect."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def pretrained_cfg(name: str) -> Any:
    """Return what timm knows about a model's weights; None for networks of our own.

    Raises:
        InputError: there is no such network.
    """
    if not check_timm_name(name):
        return None
    import timm

    return timm.get_pretrained_cfg(name)
