"""Supervised learning: its loss against a loop, and its classifier."""

import math
from pathlib import Path

import pytest
import torch

from built_methods import DIM, build, normal, whole
from images import flat_folder
from runs import tiny_run
from wcl.methods.supervised import Supervised
from wcl.system.errors import InputError


def supervised(labels: torch.Tensor) -> Supervised:
    method = build("supervised", labels=labels).double()
    assert isinstance(method, Supervised)
    return method


def test_the_loss_is_the_cross_entropy_of_both_views() -> None:
    labels = torch.tensor([2, 0, 1, 2, 2])
    logits = normal(0, 2, 5, 3)
    total = 0.0
    for view in logits.tolist():
        for row, label in zip(view, labels.tolist(), strict=True):
            total -= row[label] - math.log(sum(math.exp(value) for value in row))
    h = normal(1, 2, 5, DIM)
    losses = supervised(labels).loss({"h": h, "logits": logits}, {}, whole(5))
    assert losses.total.item() == pytest.approx(total / 10, rel=1e-9)


def test_the_classifier_reads_the_features_and_trains_the_whole_network() -> None:
    labels = torch.tensor([2, 0, 1, 2, 0, 0, 1, 1])
    method = supervised(labels)
    out = method.embed([normal(0, 2, 8, 3, 8, 8)])
    expected = out["h"] @ method.classifier.weight.T + method.classifier.bias
    torch.testing.assert_close(out["logits"], expected)
    assert out["logits"].shape == (2, 8, 3)
    assert out.keys() == {"h", "logits"}  # there is no projection head
    method.loss(out, {}, whole(8)).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())


def test_equal_logits_have_the_loss_of_chance() -> None:
    logits = torch.ones(2, 4, 3, dtype=torch.float64)
    method = supervised(torch.tensor([0, 2, 2, 1]))
    losses = method.loss({"h": logits, "logits": logits}, {}, whole(4))
    assert losses.total.item() == pytest.approx(math.log(3))


@pytest.mark.parametrize("method", ["supervised", "supcon"])
def test_it_needs_labels_of_two_classes(method: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"method: {method} .* one class"):
        tiny_run(tmp_path / "run", method=method, classes=1)
    flat = flat_folder(tmp_path / "flat")
    with pytest.raises(InputError, match=rf"method: {method} .* has none; put"):
        tiny_run(tmp_path / "run", method=method, data=str(flat), batch_size=2)
