"""The precision in which a network is fastest on this machine."""

import dataclasses

import torch
from torch import nn

from wcl.config import PretrainConfig
from wcl.models.backbones import build_backbone
from wcl.system.machine import best_device


def with_precision(config: PretrainConfig) -> PretrainConfig:
    """Return the settings with a precision in place of `auto`."""
    if config.precision != "auto":
        return config
    with torch.device("meta"):  # no memory, no time
        backbone = build_backbone(config.model, 3, config.image_size)
    has_fast_bfloat16 = _has_fast_bfloat16(best_device(config.device), backbone)
    return dataclasses.replace(config, precision="bf16-mixed" if has_fast_bfloat16 else "32-true")


def _has_fast_bfloat16(device: str, backbone: nn.Module) -> bool:
    """Return whether mixed precision with bfloat16 is faster than single precision.

    CPUs need instructions for it: AMX, or AVX512-BF16, with which oneDNN computes convolutions and
    products. There, `python -m benchmarks arithmetic` found ResNets and plain convolutions 1.3 to
    2.2 times as fast, and a network of depthwise convolutions, which are no large matrix products,
    slower.
    """
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    convolutions = (layer for layer in backbone.modules() if isinstance(layer, nn.Conv2d))
    has_groups = any(layer.groups > 1 for layer in convolutions)
    return device == "cpu" and _multiplies_bfloat16() and not has_groups


def _multiplies_bfloat16() -> bool:
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())
