"""Runs small enough to train within a test."""

import json
from pathlib import Path
from typing import Any

import wcl

TINY: dict[str, Any] = {
    "limit": 128,
    "batch": 32,
    "epochs": 2,
    "model": {"head_width": 32, "head_out": 16},
    "log": {"every": 2, "tensorboard": False},
}


def tiny_run(out: Path, **changes: Any) -> Path:
    """Four steps an epoch on 128 digits, about a second."""
    return wcl.pretrain("digits", **{**TINY, "out": str(out), **changes})


def photo_run(data: Path, out: Path, **changes: Any) -> Path:
    """A few steps on photos, decoded by a worker process."""
    settings = {**TINY, "data": str(data), "limit": 0, "batch": 8, "size": 32, "workers": 1}
    model = {"backbone": "resnet_small", "stem": "stride2", "head_width": 32, "head_out": 16}
    return wcl.pretrain("folder", **{**settings, "out": str(out), "model": model, **changes})


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock measured."""
    timing = ("seconds", "images_per_second", "data_wait")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in timing} for line in lines]
