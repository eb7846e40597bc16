"""What small crops cost: 2×160 + 6×96 pixels of WCL against 2×224 of SimCLR, ResNet-50."""

from functools import partial

import torch

from benchmarks.step import trainer
from benchmarks.timing import medians
from wcl.config import ModelConfig

_IMAGES = 8
_SIMCLR = [(2, 224)]
_CROPS = [(2, 160), (6, 96)]


def measure(rounds: int) -> dict[str, float]:
    """The ratio of two steps, and what the number of pixels alone would make it."""
    model = ModelConfig(backbone="resnet50", head_layers=3)
    generator = torch.Generator().manual_seed(0)

    def views(kinds: list[tuple[int, int]]) -> list[torch.Tensor]:
        return [
            torch.randn(count * _IMAGES, 3, size, size, generator=generator)
            for count, size in kinds
        ]

    seconds = medians(
        {
            "SimCLR": partial(trainer("simclr", model, 224), views(_SIMCLR)),
            "WCL with crops": partial(trainer("wcl", model, 160, crops=True), views(_CROPS)),
        },
        rounds,
    )
    return {
        "crops_over_simclr": seconds["WCL with crops"] / seconds["SimCLR"],
        "pixels_ratio": _pixels(_CROPS) / _pixels(_SIMCLR),
    }


def _pixels(kinds: list[tuple[int, int]]) -> int:
    return sum(count * size**2 for count, size in kinds)
