"""Checkpoints small enough to be written often."""

from pathlib import Path
from typing import Any

import torch

from wcl.config import PretrainConfig
from wcl.training.checkpoint import _ENTRIES, save_checkpoint

CONFIG = PretrainConfig(data="digits", out="run")


def state(step: int, numbers: int = 5_000) -> dict[str, Any]:
    """What a run might save after a step; the weights are that step's number."""
    parts: dict[str, Any] = {name: kind() for name, kind in _ENTRIES.items()}
    weights = {"weight": torch.full((numbers,), float(step)), "bias": torch.arange(7)}
    return parts | {"step": step, "method": weights, "optimizer": {"state": {0: weights}}}


def save(folder: Path, step: int, numbers: int = 5_000) -> Path:
    """The checkpoint of that step as `last.ckpt` in the folder."""
    path = folder / "last.ckpt"
    save_checkpoint(state(step, numbers), CONFIG, path)
    return path
