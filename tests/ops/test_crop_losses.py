"""The losses of extra crops against plain loops over their definitions, with their gradients."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from naive_losses import (
    MODES,
    Positives,
    add_up,
    assert_same_with_gradient,
    cosine,
    labels_of,
    modes,
    normal,
    seeds,
    shards,
    temperatures,
)
from wcl.ops.losses import crop_nce, crop_swap


def crop_nce_by_loop(crops: Tensor, z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    terms = []
    for crop in crops:
        for i, anchor in enumerate(crop):
            for keys in (z1, z2):
                scores = torch.stack([torch.exp(cosine(anchor, key) / temperature) for key in keys])
                terms.append(-torch.log(scores[i] / scores.sum()) / 2)
    return torch.stack(terms).sum() / (crops.shape[0] * crops.shape[1])


def crop_swap_by_loop(
    crops: Tensor,
    v1: Tensor,
    v2: Tensor,
    labels1: Tensor,
    labels2: Tensor,
    temperature: float,
    positives: Positives,
    key_gradient: bool,
) -> Tensor:
    total = torch.zeros((), dtype=v1.dtype)
    for crop in crops:
        for keys, labels in ((v1, labels2), (v2, labels1)):
            keys = keys if key_gradient else keys.detach()
            for i, anchor in enumerate(crop):
                scores = torch.stack([torch.exp(cosine(anchor, key) / temperature) for key in keys])
                own = [j for j in range(len(keys)) if labels[j] == labels[i]]  # i among them
                terms = -torch.log(scores[own] / scores.sum())
                total = total + (terms.mean() if positives == "mean" else terms.sum())
    return total / (crops.shape[0] * crops.shape[1])


@given(seeds, st.integers(1, 3), st.integers(2, 5), st.integers(1, 4), temperatures)
@settings(max_examples=25)
def test_crop_nce_is_its_definition(
    seed: int, crops: int, count: int, width: int, temperature: float
) -> None:
    assert_same_with_gradient(
        partial(crop_nce, temperature=temperature),
        partial(crop_nce_by_loop, temperature=temperature),
        normal(seed, crops, count, width),
        normal(seed + 1, count, width),
        normal(seed + 2, count, width),
    )


@given(seeds, st.integers(1, 3), st.integers(2, 6), st.integers(1, 6), temperatures, modes)
@settings(max_examples=25)
def test_crop_swap_is_its_definition(
    seed: int, crops: int, count: int, classes: int, temperature: float, mode: Positives
) -> None:
    given_labels: dict[str, Any] = {
        "labels1": labels_of(seed, count, classes),
        "labels2": labels_of(seed + 9, count, classes),
    }
    options: dict[str, Any] = {"temperature": temperature, "positives": mode, "key_gradient": True}
    assert_same_with_gradient(
        partial(crop_swap, **given_labels, **options),
        partial(crop_swap_by_loop, **given_labels, **options),
        normal(seed, crops, count, 4),
        normal(seed + 1, count, 4),
        normal(seed + 2, count, 4),
    )


@given(seeds, st.integers(1, 3), st.integers(2, 6), temperatures)
@settings(deadline=None, max_examples=20)
def test_the_shards_of_crop_nce_add_up_to_the_whole(
    seed: int, crops: int, count: int, temperature: float
) -> None:
    assert_same_with_gradient(
        lambda c, a, b: add_up(
            crop_nce(c[:, own], a, b, temperature, own) for own in shards(seed, count)
        ),
        partial(crop_nce_by_loop, temperature=temperature),
        normal(seed, crops, count, 4),
        normal(seed + 1, count, 4),
        normal(seed + 2, count, 4),
    )


@given(seeds, st.integers(1, 3), st.integers(2, 6), temperatures, modes)
@settings(deadline=None, max_examples=20)
def test_the_shards_of_crop_swap_add_up_to_the_whole(
    seed: int, crops: int, count: int, temperature: float, mode: Positives
) -> None:
    form = labels_of(seed, count, 3), labels_of(seed + 9, count, 3), temperature, mode, True
    assert_same_with_gradient(
        lambda c, a, b: add_up(
            crop_swap(c[:, own], a, b, *form, own) for own in shards(seed, count)
        ),
        lambda c, a, b: crop_swap_by_loop(c, a, b, *form),
        normal(seed, crops, count, 4),
        normal(seed + 1, count, 4),
        normal(seed + 2, count, 4),
    )


@pytest.mark.parametrize("mode", MODES)
def test_blocked_keys_get_no_gradient_and_the_crops_the_same(mode: Positives) -> None:
    crops = normal(0, 2, 5, 4).requires_grad_()
    v1, v2 = normal(1, 5, 4).requires_grad_(), normal(2, 5, 4).requires_grad_()
    labels = labels_of(0, 5, 2), labels_of(1, 5, 3)
    loss = crop_swap(crops, v1, v2, *labels, positives=mode, key_gradient=False)
    expected = crop_swap_by_loop(crops, v1, v2, *labels, 0.1, mode, False)
    gradient, *keys = torch.autograd.grad(loss, [crops, v1, v2], allow_unused=True)
    assert keys == [None, None]
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, crops)[0])


def test_when_every_image_has_a_label_of_its_own_crop_swap_is_twice_crop_nce() -> None:
    crops, v1, v2 = normal(0, 3, 6, 4), normal(1, 6, 4), normal(2, 6, 4)
    own = torch.arange(6)
    torch.testing.assert_close(crop_swap(crops, v1, v2, own, own), 2 * crop_nce(crops, v1, v2))


def test_crops_that_do_not_match_the_views_are_an_error() -> None:
    with pytest.raises(ValueError, match="crops of the same images"):
        crop_nce(normal(0, 2, 5, 4), normal(1, 6, 4), normal(2, 6, 4))
    with pytest.raises(ValueError, match="crops of the same images"):
        crop_nce(normal(0, 6, 4), normal(1, 6, 4), normal(2, 6, 4))


def test_crops_that_are_not_of_the_own_images_are_an_error() -> None:
    own = torch.tensor([4, 0])
    with pytest.raises(ValueError, match="crops of the same images"):
        crop_nce(normal(0, 2, 5, 4), normal(1, 5, 4), normal(2, 5, 4), own=own)
