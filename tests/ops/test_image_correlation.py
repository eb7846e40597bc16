"""Aligned correlations against a loop over crops, and what they do not depend on."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from images import picture
from wcl.data.decode import squeezed
from wcl.ops import image_correlation
from wcl.ops.image_correlation import aligned_correlations, edges

Numbers = npt.NDArray[np.float64]


def reduced(*pictures: Image.Image) -> torch.Tensor:
    return torch.stack([squeezed(image, 32) for image in pictures])


def naive(a: Numbers, b: Numbers) -> float:
    """Return the highest correlation of the edges of all crops of `a` and `b`, or its mirror image.

    Pixels are repeated until a grid of 16 cells divides every crop; cells are plain means.
    """

    def on_grid(image: Numbers) -> Numbers:
        repeated = image.repeat(16, axis=1).repeat(16, axis=2)
        height, width = image.shape[1:]
        cells: Numbers = repeated.reshape(len(image), 16, height, 16, width).mean(axis=(2, 4))
        return cells

    def contrasts(image: Numbers) -> Numbers:
        grid = on_grid(image)
        return np.concatenate([np.diff(grid, axis=1).ravel(), np.diff(grid, axis=2).ravel()])

    best = -1.0
    for top, bottom, left, right in itertools.product(range(2), repeat=4):
        crop = contrasts(a[:, top : 32 - bottom, left : 32 - right])
        for other in (b, b[:, :, ::-1]):
            whole = contrasts(other)
            best = max(best, crop @ whole / np.linalg.norm(crop) / np.linalg.norm(whole))
    return best


def test_it_is_the_best_of_a_loop_over_crops_of_both_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_correlation, "_MAX_CROP", 1)
    images = reduced(picture(1), picture(2))[:, :1]
    first, second = images.numpy().astype(np.float64)
    expected = max(naive(first, second), naive(second, first))
    found = aligned_correlations(images, torch.tensor([[0, 1], [1, 0]]))
    torch.testing.assert_close(found, torch.tensor([expected] * 2).float())


@pytest.mark.parametrize("seed", range(3))
def test_copies_are_alike_and_other_pictures_are_not(seed: int) -> None:
    original = picture(seed, 150, 200)
    width, height = original.size
    copies = [
        original.resize((80, 60)),
        original.crop((int(0.08 * width), 0, width, int(0.93 * height))),
        ImageOps.mirror(original),
        ImageEnhance.Brightness(original).enhance(0.7),
    ]
    images = reduced(original, *copies, picture(seed + 10, 150, 200))
    *alike, other = aligned_correlations(images, torch.tensor([[0, i] for i in range(1, 6)]))
    assert min(alike) > 0.94
    assert other < 0.85


def test_pictures_of_one_color_resemble_only_each_other() -> None:
    black, red = (Image.new("RGB", (50, 40), color) for color in ("black", "red"))
    images = reduced(black, red, picture(1))
    pairs = torch.tensor([[0, 1], [0, 2], [1, 2], [0, 0]])
    assert aligned_correlations(images, pairs).tolist() == [1, 0, 0, 1]
    torch.testing.assert_close(edges(images).norm(dim=1), torch.ones(3))


def test_no_pairs_have_no_correlations() -> None:
    assert aligned_correlations(reduced(picture(1)), torch.empty(0, 2, dtype=torch.long)).shape == (
        0,
    )
