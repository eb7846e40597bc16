"""Cost of small crops: WCL with 2×160 + 6×96 pixels against SimCLR with 2×224, ResNet-50."""

from functools import partial

import torch

from benchmarks.step import training_step
from benchmarks.timing import medians
from wcl.config import ModelConfig

_IMAGES = 8
_SIMCLR = [(2, 224)]
_CROPS = [(2, 160), (6, 96)]


def measure(rounds: int) -> dict[str, float]:
    """Return the ratio of two steps and the ratio of their numbers of pixels."""
    model = ModelConfig(backbone="resnet50", head_layers=3)
    generator = torch.Generator().manual_seed(0)

    def views(specs: list[tuple[int, int]]) -> list[torch.Tensor]:
        return [
            torch.randn(count, _IMAGES, 3, size, size, generator=generator) for count, size in specs
        ]

    seconds = medians(
        {
            "SimCLR": partial(training_step("simclr", model, 224), views(_SIMCLR)),
            "WCL with crops": partial(training_step("wcl", model, 160, crops=6), views(_CROPS)),
        },
        rounds,
    )
    return {
        "crops_over_simclr": seconds["WCL with crops"] / seconds["SimCLR"],
        "pixels_ratio": _pixels(_CROPS) / _pixels(_SIMCLR),
    }


def _pixels(specs: list[tuple[int, int]]) -> int:
    return sum(count * size**2 for count, size in specs)
