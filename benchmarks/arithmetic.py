"""How far the forward and backward passes of networks are from the arithmetic limit of this CPU.

The limit is the rate of a large product of square matrices or of a large 3×3 convolution, whichever
is higher: other libraries compute them, and on AMD's CPUs that of products is the slower one. FLOPs
are those of convolutions and matrix products; what else a network does (batch norm, activations)
counts as lost time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import medians
from wcl.config import ModelConfig
from wcl.models.backbones import build_backbone

_SIDE = 2048
_NETWORKS = {
    "conv_tiny": (ModelConfig(backbone="conv_tiny"), 32, 256),
    "resnet_small": (ModelConfig(backbone="resnet_small", stem="stride2"), 32, 256),
    "resnet18": (ModelConfig(backbone="resnet18"), 128, 32),
    "efficientnet_lite0": (ModelConfig(backbone="tf_efficientnet_lite0"), 96, 32),
}
"""Backbone, image size and images in a batch."""


def measure(rounds: int) -> dict[str, float]:
    """Return the share of the limit that each network reaches, and what bfloat16 gains."""
    side = torch.randn(_SIDE, _SIDE)
    convolution = nn.Conv2d(_SIDE // 8, _SIDE // 8, 3, bias=False).requires_grad_(False)
    maps = torch.randn(16, _SIDE // 8, 34, 34).contiguous(memory_format=torch.channels_last)
    calls: dict[str, Callable[[], Any]] = {
        "product": partial(torch.mm, side, side),
        "convolution": partial(convolution.to(memory_format=torch.channels_last), maps),  # type: ignore[call-overload]
        "product_bfloat16": partial(torch.mm, side.bfloat16(), side.bfloat16()),
    }
    flops = {}
    for name, (model, size, images) in _NETWORKS.items():
        network = build_backbone(model, 3, size).train()
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        views = torch.randn(images, 3, size, size).contiguous(memory_format=torch.channels_last)
        flops[name] = 3 * _forward_flops(network, views)  # of the backward pass: twice as many
        calls[name] = partial(_forward_and_backward, network, views, False)
        calls[f"{name}_bfloat16"] = partial(_forward_and_backward, network, views, True)
    seconds = medians(calls, rounds)
    rates = {
        "product": 2 * _SIDE**3 / seconds["product"],
        "convolution": _forward_flops(convolution, maps) / seconds["convolution"],
    }
    limit = max(rates.values())
    figures = {f"{name}_of_limit": rate / limit for name, rate in rates.items()}
    figures["product_bfloat16_over_float32"] = seconds["product"] / seconds["product_bfloat16"]
    for name in _NETWORKS:
        figures[f"{name}_of_limit"] = flops[name] / seconds[name] / limit
        figures[f"{name}_bfloat16_over_float32"] = seconds[name] / seconds[f"{name}_bfloat16"]
    return figures


def _forward_flops(network: nn.Module, images: Tensor) -> int:
    """Return the FLOPs of convolutions and linear layers: two for each weight and output place."""
    flops = 0

    def add(layer: nn.Module, _: object, out: Tensor) -> None:
        nonlocal flops
        weight: Any = layer.weight
        flops += 2 * weight.numel() * (out.numel() // len(weight))

    layers = (layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear))
    hooks = [layer.register_forward_hook(add) for layer in layers]
    network(images)
    for hook in hooks:
        hook.remove()
    return flops


def _forward_and_backward(network: nn.Module, images: Tensor, bfloat16: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        features = network(images)
    features.float().sum().backward()
