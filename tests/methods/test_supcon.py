"""SupCon: its loss against a loop, and its limits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from built_methods import DIM, build, embeddings, losses_of, normal
from naive_losses import nt_xent_by_loop, seeds, supervised_by_loop
from wcl.methods import Method


def supcon(labels: Tensor, temperature: float = 0.1) -> Method:
    return build("supcon", labels=labels, temperature=temperature)


@given(seeds, st.lists(st.integers(0, 999), min_size=2, max_size=8))
@settings(deadline=None, max_examples=30)
def test_the_loss_is_its_definition_for_any_classes(seed: int, classes: list[int]) -> None:
    labels = torch.tensor(classes)
    method = supcon(labels, 0.3)
    out = embeddings(method, seed, len(classes))
    losses = losses_of(method, out)
    expected = supervised_by_loop(out["g"].flatten(0, 1), labels.repeat(2), 0.3, "mean", True)
    torch.testing.assert_close(losses.total, expected, rtol=1e-9, atol=1e-9)


def test_the_labels_that_it_reports_are_the_classes() -> None:
    labels = torch.tensor([700, 2, 700, 41, 2])
    method = supcon(labels)
    for found in losses_of(method, embeddings(method, images=5)).weak_labels:
        assert torch.equal(found[:, None] == found, labels[:, None] == labels)
        assert found.min() >= 0 and found.max() < 5


def test_with_a_class_for_every_image_it_is_nt_xent() -> None:
    method = supcon(torch.arange(9))
    out = embeddings(method)
    expected = nt_xent_by_loop(out["g"][0], out["g"][1], 0.1)
    torch.testing.assert_close(losses_of(method, out).total, expected)


@pytest.mark.parametrize("labels", [torch.zeros(6, dtype=torch.long), torch.arange(6)])
def test_equal_embeddings_have_the_loss_of_chance(labels: Tensor) -> None:
    rows = normal(0, 1, DIM).expand(2, 6, DIM)
    losses = losses_of(supcon(labels), {"h": rows, "g": rows})
    torch.testing.assert_close(losses.total, torch.tensor(11.0, dtype=torch.float64).log())
