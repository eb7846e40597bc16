from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import functional as reference

from wcl.augment import color_jitter, rotate_hue, solarize, to_grayscale
from wcl.augment.color import BRIGHTNESS, CONTRAST, HUE, SATURATION
from wcl.ops.randomness import Floats, Integers

_TOLERANCE = 1e-5  # for pixels in [0, 1], float32
_HUE_TOLERANCE = 1e-4  # a hue is a quotient of small differences
_NOTHING = [1.0, 1.0, 1.0, 0.0]
_ADJUST: dict[int, Callable[[Tensor, float], Tensor]] = {
    BRIGHTNESS: reference.adjust_brightness,
    CONTRAST: reference.adjust_contrast,
    SATURATION: reference.adjust_saturation,
    HUE: reference.adjust_hue,
}
_ORDERS: Integers = np.array(list(permutations(range(4))), dtype=np.int64)


def _images() -> Tensor:
    """Random ones, plain and striped ones of the corners of the color cube, grays, near-grays."""
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(8, 3, 12, 10, generator=generator)
    corners = torch.tensor([[r, g, b] for r in (0.0, 1.0) for g in (0.0, 1.0) for b in (0.0, 1.0)])
    plain = corners[:, :, None, None].expand(8, 3, 12, 10)
    striped = torch.where(torch.arange(10) % 2 == 0, plain, plain.flip(0) * 0.5)
    gray = torch.rand(4, 1, 12, 10, generator=generator).expand(4, 3, 12, 10)
    nearly = (gray + 0.004 * torch.rand(4, 3, 12, 10, generator=generator)).clamp(0, 1)
    bytes_only = torch.randint(0, 256, (4, 3, 12, 10), generator=generator) / 255
    return torch.cat([random, plain, striped, gray, nearly, bytes_only])


def _in_order(image: Tensor, factors: list[float], order: list[int]) -> Tensor:
    for operation in order:
        image = _ADJUST[operation](image, factors[operation])
    return image


def _assert_as_torchvision(images: Tensor, factors: Floats, order: Integers) -> None:
    theirs = torch.stack(
        [_in_order(*row) for row in zip(images, factors.tolist(), order.tolist(), strict=True)]
    )
    tolerance = _HUE_TOLERANCE if factors[:, HUE].any() else _TOLERANCE
    ours = color_jitter(images, factors, order)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


def _factors(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.uniform(0.2, 1.8, (count, 3)), rng.uniform(-0.5, 0.5, (count, 1))], axis=1
    )


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        *((BRIGHTNESS, f) for f in (0.0, 0.3, 1.0, 1.8)),
        *((CONTRAST, f) for f in (0.0, 0.3, 1.0, 1.8)),
        *((SATURATION, f) for f in (0.0, 0.3, 1.0, 1.8)),
        *((HUE, f) for f in (-0.5, -0.17, 0.0, 0.01, 1 / 6, 0.2, 0.5)),
    ],
)
def test_each_change_equals_torchvisions(operation: int, factor: float) -> None:
    images = _images()
    factors = np.tile(np.array(_NOTHING), (len(images), 1))
    factors[:, operation] = factor
    _assert_as_torchvision(images, factors, np.tile(np.arange(4), (len(images), 1)))


@pytest.mark.parametrize("order", _ORDERS.tolist())
def test_every_order_equals_one_change_after_the_other(order: list[int]) -> None:
    images = _images()
    factors = _factors(len(images), seed=int("".join(map(str, order))))
    _assert_as_torchvision(images, factors, np.tile(np.array(order), (len(images), 1)))


def test_a_batch_may_hold_every_order_at_once() -> None:
    images = _images().repeat(4, 1, 1, 1)
    rng = np.random.default_rng(0)
    order = rng.permutation(np.resize(_ORDERS, (len(images), 4)))
    factors = _factors(len(images))
    factors[rng.random(len(images)) < 0.3] = _NOTHING
    _assert_as_torchvision(images, factors, order)


def test_without_hue_the_blends_are_exact_to_rounding() -> None:
    images = torch.rand(24, 3, 12, 10, generator=torch.Generator().manual_seed(1))
    factors = _factors(24)
    factors[:, HUE] = 0
    theirs = [_in_order(*r) for r in zip(images, factors.tolist(), _ORDERS.tolist(), strict=True)]
    ours = color_jitter(images, factors, _ORDERS)
    torch.testing.assert_close(ours, torch.stack(theirs), atol=_TOLERANCE, rtol=0)


def test_images_with_nothing_to_change_come_back_as_they_were() -> None:
    images = _images()
    factors = _factors(len(images))
    factors[::2] = _NOTHING
    order = np.resize(_ORDERS, (len(images), 4))
    changed = color_jitter(images, factors, order)
    assert torch.equal(changed[::2], images[::2])
    nothing = np.tile(np.array(_NOTHING), (len(images), 1))
    assert torch.equal(color_jitter(images, nothing, order), images)


def test_the_images_given_are_left_alone() -> None:
    images = _images()
    before = images.clone()
    color_jitter(images, _factors(len(images)), np.resize(_ORDERS, (len(images), 4)))
    rotate_hue(images, torch.full((len(images),), 0.2))
    to_grayscale(images)
    assert torch.equal(images, before)


def test_an_image_does_not_depend_on_its_batch() -> None:
    images, order = _images(), np.resize(_ORDERS, (36, 4))
    factors = _factors(len(images))
    together = color_jitter(images, factors, order)
    for i in range(len(images)):
        row = slice(i, i + 1)
        alone = color_jitter(images[row], factors[row], order[row])
        torch.testing.assert_close(together[row], alone, atol=1e-6, rtol=0)


def test_one_channel_has_brightness_and_contrast_but_no_color() -> None:
    images = torch.rand(24, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    _assert_as_torchvision(images, _factors(24), _ORDERS)


def test_gray_equals_torchvisions() -> None:
    images = _images()
    theirs = reference.rgb_to_grayscale(images)
    torch.testing.assert_close(to_grayscale(images), theirs, atol=_TOLERANCE, rtol=0)


def test_gray_of_gray_is_itself() -> None:
    images = torch.rand(3, 1, 5, 5)
    assert torch.equal(to_grayscale(images), images)


def test_solarize_equals_torchvisions() -> None:
    images = torch.cat([_images(), torch.full((1, 3, 12, 10), 0.5)])
    assert torch.equal(solarize(images), reference.solarize(images, 0.5))


def test_a_third_of_a_turn_passes_the_channels_on() -> None:
    images = _images()
    turned = rotate_hue(images, torch.full((len(images),), 1 / 3))
    torch.testing.assert_close(turned, images.roll(1, dims=1), atol=_HUE_TOLERANCE, rtol=0)


def test_a_whole_turn_changes_nothing() -> None:
    images = _images()
    for turn in (-1.0, 0.0, 1.0):
        turned = rotate_hue(images, torch.full((len(images),), turn))
        torch.testing.assert_close(turned, images, atol=_HUE_TOLERANCE, rtol=0)


def test_hue_leaves_grays_exactly_alone() -> None:
    grays = torch.linspace(0, 1, 11).view(11, 1, 1, 1).expand(11, 3, 4, 4)
    assert torch.equal(rotate_hue(grays, torch.linspace(-0.5, 0.5, 11)), grays)
