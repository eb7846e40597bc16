"""Image sizes that networks of timm can take.

A convolutional network takes images of any size. Others are built for one, but most of them can
take others too: timm resamples the position embeddings of ViTs and pads images to whole patches,
and it pads and masks the windows of Swin. At the size that a network was built for, nothing
changes, unless its patches do not divide the images: they are then padded instead of cut off.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import nn

# Arguments of timm's networks. Few have all of them.
_ANY_SIZE = {"dynamic_img_size": True, "dynamic_img_pad": True, "strict_img_size": False}
_STEP = 32  # pixels; most networks reduce images by this factor


def size_options(name: str, size: int) -> dict[str, Any]:
    """Return the arguments of `timm.create_model` for images of this size, and of others.

    >>> size_options("resnet18", 64)
    {}
    >>> size_options("vit_tiny_patch16_224", 64)
    {'img_size': 64, 'dynamic_img_size': True, 'dynamic_img_pad': True}
    """
    import timm  # here, because networks of our own do without it, and it takes a second

    known = timm.get_pretrained_cfg(name)
    return {"img_size": size, **_any_size(name)} if known and known.fixed_input_size else {}


@cache
def _any_size(name: str) -> dict[str, bool]:
    """Return those of `_ANY_SIZE` that a network's class accepts."""
    import timm

    with torch.device("meta"):  # a quick way to learn the class
        network = timm.create_model(name)
    accepted: set[str] = set()
    for each in type(network).__mro__:
        parameters = inspect.signature(each).parameters
        accepted |= {*parameters}
        if "kwargs" not in parameters:  # which go to the next class
            break
    return {option: value for option, value in _ANY_SIZE.items() if option in accepted}


def try_size(network: nn.Module, channels: int, size: int) -> None:
    """Compute the features of blank images of this size.

    Raises:
        RuntimeError, AssertionError: the network cannot take them.
    """
    some = next(network.parameters())
    with torch.no_grad():
        network.eval()(torch.zeros(2, channels, size, size, device=some.device, dtype=some.dtype))


def working_sizes(
    build: Callable[[int], nn.Module], channels: int, size: int, native: int
) -> list[int]:
    """Return sizes that work where another does not.

    Args:
        build: returns the network for images of a size.
        channels: of the images.
        size: which does not work; those around it are tried.
        native: another size to try.
    """
    below = size // _STEP * _STEP
    found = []
    for candidate in sorted({below, below + _STEP, native} - {0, size}):
        with suppress(RuntimeError, AssertionError, ValueError), torch.device("meta"):
            try_size(build(candidate), channels, candidate)
            found.append(candidate)
    return found


def size_problem(setting: str, name: str, size: int, error: Exception, sizes: Sequence[int]) -> str:
    """Return the message about a size that a network cannot take, with sizes that work."""
    remedy = f"use {' or '.join(map(str, sizes))}" if sizes else "choose another size or network"
    reason = str(error).splitlines()[0].rstrip(".")
    return f"{setting}: {name} cannot take images of {size}×{size} pixels ({reason}); {remedy}"
