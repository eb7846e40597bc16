"""Convolutions of small maps as matrix products against torch's, in a layer and in networks."""

import copy
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.networks import with_convolutions
from benchmarks.timing import medians
from wcl.config import ModelConfig
from wcl.models.backbones import build_backbone
from wcl.models.small_maps import SmallMapConv2d

_IMAGES, _CHANNELS = 512, 256


def measure(rounds: int) -> dict[str, float]:
    """Return how many times as long convolutions take, forward and backward."""
    layer = SmallMapConv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False)
    small = build_backbone(ModelConfig(backbone="resnet_small", stem="stride2"), 3, 32)
    resnet18 = build_backbone(ModelConfig(backbone="resnet18"), 3, 64)
    return {
        "layer_1x1": _ratio(layer, torch.randn(_IMAGES, _CHANNELS, 1, 1), rounds),
        "layer_2x2": _ratio(layer, torch.randn(_IMAGES, _CHANNELS, 2, 2), rounds),
        "resnet_small_32": _ratio(small, torch.randn(_IMAGES, 3, 32, 32), rounds),
        "resnet_small_crops_16": _ratio(small, torch.randn(2 * _IMAGES, 3, 16, 16), rounds),
        "resnet18_64": _ratio(resnet18, torch.randn(_IMAGES // 8, 3, 64, 64), rounds),
    }


def _ratio(network: nn.Module, images: Tensor, rounds: int) -> float:
    network = network.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    convolutions = with_convolutions(copy.deepcopy(network))
    images = images.contiguous(memory_format=torch.channels_last)
    images.requires_grad_(isinstance(network, SmallMapConv2d))  # which is inside a network
    calls = {"matrices": network, "convolutions": convolutions}
    seconds = medians(
        {name: partial(_forward_and_backward, each, images) for name, each in calls.items()}, rounds
    )
    return seconds["convolutions"] / seconds["matrices"]


def _forward_and_backward(network: nn.Module, images: Tensor) -> None:
    network(images).sum().backward()
