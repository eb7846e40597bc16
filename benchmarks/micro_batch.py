"""What passing a batch through the network in pieces saves in memory and costs in time."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.memory import in_new_process
from benchmarks.step import trainer
from benchmarks.timing import medians
from wcl.config import ModelConfig

_BATCH, _PIECE, _SIZE = 2048, 256, 32


def micro_batch(rounds: int) -> dict[str, float]:
    """A step of ResNet-18 on 2,048 images of 32 pixels: in pieces of 256 over the whole at once.

    One forward pass more where a step is three (a backward pass costs two) says 4/3 of the time.
    """
    pieces = {"whole": 0, "micro": _PIECE}
    gigabytes = {
        way: in_new_process(_one_step, _BATCH, _SIZE, piece)[0] for way, piece in pieces.items()
    }
    views = _views(_BATCH, _SIZE)
    steps = {way: partial(_trainer(_SIZE, piece), views) for way, piece in pieces.items()}
    seconds = medians(steps, rounds)
    return {
        "whole_peak_gb": gigabytes["whole"],
        "micro_peak_gb": gigabytes["micro"],
        "micro_peak_ratio": gigabytes["micro"] / gigabytes["whole"],
        "micro_time_ratio": seconds["micro"] / seconds["whole"],
    }


def _trainer(size: int, piece: int) -> Callable[[list[Tensor]], None]:
    return trainer("wcl", ModelConfig(backbone="resnet18"), size, piece=piece)


def _views(batch_size: int, size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2 * batch_size, 3, size, size, generator=generator)]


def _one_step(batch_size: int, size: int, piece: int) -> None:
    _trainer(size, piece)(_views(batch_size, size))
