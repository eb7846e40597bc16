"""Runs small enough to train within a test."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

import wcl
from wcl.config.layering import settings
from wcl.distributed.world import World
from wcl.methods import method_settings
from wcl.training.setup import TrainingSetup, prepare
from wcl.training.stop import StopRequest

TINY: dict[str, Any] = {
    "limit": 128,
    "batch_size": 32,
    "epochs": 2,
    "model": {"head_hidden_dim": 32, "head_out_dim": 16},
    "log": {"every": 2, "tensorboard": False},
}

CROPS: dict[str, Any] = {"count": 2, "size": 16, "scale": [0.3, 0.6], "neighbors": True}


class Row(NamedTuple):
    """A row of the paper's ablation: its settings, and the losses and heads that it has."""

    loss: dict[str, Any]
    terms: set[str]
    heads: tuple[str, ...]


_NO_CROPS = {"cnce": 0.0, "cswap": 0.0}
ABLATION = {
    "g only": Row({"swap": 0.0, **_NO_CROPS}, {"nce"}, ("g",)),
    "phi only": Row({"nce": 0.0, **_NO_CROPS}, {"swap"}, ("phi",)),
    "one head": Row({"heads": "shared", **_NO_CROPS}, {"nce", "swap"}, ("g",)),
    "two heads": Row(_NO_CROPS, {"nce", "swap"}, ("g", "phi")),
    "with cNCE": Row({"cswap": 0.0}, {"nce", "swap", "cnce"}, ("g", "phi")),
    "with cswap": Row({"cnce": 0.0}, {"nce", "swap", "cswap"}, ("g", "phi")),
    "with both": Row({}, {"nce", "swap", "cnce", "cswap"}, ("g", "phi")),
}


def tiny_run(out: Path, **changes: Any) -> Path:
    """Four steps an epoch on 128 digits, about a second."""
    return wcl.pretrain("digits", **{**TINY, "out": str(out), **changes})


def prepared(out: Path, **changes: Any) -> TrainingSetup:
    """The parts of a tiny run, which is not started."""
    config = settings("digits", {**TINY, "out": str(out), **changes}, method_settings)
    return prepare(config, False, torch.device("cpu"), World())


def photo_run(data: Path, out: Path, **changes: Any) -> Path:
    """A few steps on photos, decoded by a worker process."""
    settings = {
        **TINY,
        "data": str(data),
        "limit": 0,
        "batch_size": 8,
        "image_size": 32,
        "num_workers": 1,
    }
    settings["crops"] = {"count": 0}
    model = {
        "backbone": "resnet_small",
        "stem": "stride2",
        "head_hidden_dim": 32,
        "head_out_dim": 16,
    }
    return wcl.pretrain("folder", **{**settings, "out": str(out), "model": model, **changes})


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock measured."""
    timing = ("seconds", "images_per_second", "data_wait", "search_seconds", "search_share")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in timing} for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "encoder.safetensors")


def checkpoint(run: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return state


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, optimizer, neighbors and metrics are equal bit for bit."""
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    one, two = checkpoint(a), checkpoint(b)
    for key, state in one["optimizer"]["state"].items():
        for name, value in state.items():
            other = two["optimizer"]["state"][key][name]
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other))
    assert one["neighbor_crops"].keys() == two["neighbor_crops"].keys()
    for name, value in one["neighbor_crops"].items():
        other = two["neighbor_crops"][name]
        assert value is other is None or torch.equal(value, other), name
    assert metrics(a) == metrics(b)


@contextmanager
def stopped_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the run in here believe that somebody pressed Ctrl-C during that step."""
    asked = iter(range(1, 10**6))
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(StopRequest, "__bool__", lambda self: next(asked) >= steps)
        yield
