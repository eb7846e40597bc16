import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms import functional as reference

from wcl.augment import affine, crop_boxes, gaussian_blur, resized_crop
from wcl.augment.geometry import CROP_DRAWS
from wcl.ops.randomness import Floats, Integers

_AREA = (0.2, 1.0)
_RATIO = (0.75, 4 / 3)
_FLOAT32 = 1e-5  # largest difference allowed for pixels in [0, 1] of images up to 100 pixels
_FLOAT64 = 1e-9


def _boxes(
    height: int,
    width: int,
    count: int,
    scale: tuple[float, float] = _AREA,
    ratio: tuple[float, float] = _RATIO,
    seed: int = 0,
) -> Integers:
    u = np.random.default_rng(seed).random((count, CROP_DRAWS))
    return crop_boxes(u, np.full(count, height), np.full(count, width), scale, ratio)


def _reference_boxes(
    height: int, width: int, count: int, scale: tuple[float, float] = _AREA
) -> Integers:
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    return np.array([RandomResizedCrop.get_params(image, scale, _RATIO) for _ in range(count)])


def _images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def _assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=30),
    st.sampled_from([(0.2, 1.0), (0.08, 1.0), (0.05, 0.14), (1.0, 1.0), (0.001, 0.002)]),
    st.sampled_from([(0.75, 4 / 3), (1.0, 1.0), (0.1, 0.3), (5.0, 9.0), (0.01, 100.0)]),
    st.integers(0, 2**32),
)
def test_boxes_lie_inside_the_image_and_are_not_empty(
    sizes: list[tuple[int, int]],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    seed: int,
) -> None:
    heights, widths = np.array(sizes, dtype=np.int64).T
    u = np.random.default_rng(seed).random((len(sizes), CROP_DRAWS))
    top, left, height, width = crop_boxes(u, heights, widths, scale, ratio).T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (height >= 1).all()
    assert (width >= 1).all()
    assert (top + height <= heights).all()
    assert (left + width <= widths).all()


@pytest.mark.parametrize("u", [0.0, math.nextafter(1, 0)])
def test_boxes_lie_inside_the_image_for_the_outermost_numbers(u: float) -> None:
    sizes = np.arange(1, 2000, dtype=np.int64)
    edge = np.full((len(sizes), CROP_DRAWS), u)
    edge[:, 10:20] = 0.5  # square crops, so that the first attempt fits
    top, left, height, width = crop_boxes(edge, sizes, sizes, _AREA, _RATIO).T
    assert (top + height <= sizes).all()
    assert (left + width <= sizes).all()
    assert u == 0 or ((top + height == sizes) & (left + width == sizes)).all()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (60, 100), (300, 120), (375, 500)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.2, 1.0), (0.05, 0.14)])
def test_boxes_are_distributed_as_torchvisions(
    height: int, width: int, scale: tuple[float, float]
) -> None:
    ours = _boxes(height, width, 3000, scale)
    theirs = _reference_boxes(height, width, 3000, scale)
    for statistic in (_area_share, _log_ratio, lambda boxes: boxes[:, 0], lambda b: b[:, 1]):
        assert stats.ks_2samp(statistic(ours), statistic(theirs)).pvalue > 0.01 / 4


def _area_share(boxes: Integers) -> Integers:
    return boxes[:, 2] * boxes[:, 3]


def _log_ratio(boxes: Integers) -> Floats:
    return np.log(boxes[:, 3] / boxes[:, 2])


@pytest.mark.parametrize(
    ("height", "width"), [(500, 3), (3, 500), (1, 500), (500, 1), (20, 301), (301, 20), (2, 40)]
)
def test_extreme_images_fall_back_to_torchvisions_centerd_crop(height: int, width: int) -> None:
    ours = _boxes(height, width, 50)
    theirs = _reference_boxes(height, width, 1)
    assert (ours == theirs).all()


@pytest.mark.parametrize("side", [1, 2, 8, 32, 500])
def test_the_whole_area_of_a_square_is_the_whole_image(side: int) -> None:
    assert (_boxes(side, side, 200, scale=(1, 1)) == [0, 0, side, side]).all()


def test_a_box_does_not_depend_on_the_rest_of_the_batch() -> None:
    u = np.random.default_rng(0).random((40, CROP_DRAWS))
    heights, widths = np.random.default_rng(1).integers(1, 300, (2, 40))
    together = crop_boxes(u, heights, widths, _AREA, _RATIO)
    for i in range(40):
        alone = crop_boxes(u[i : i + 1], heights[i : i + 1], widths[i : i + 1], _AREA, _RATIO)
        assert (alone[0] == together[i]).all()


_CROPS = [
    pytest.param(32, 32, 32, id="same size"),
    pytest.param(40, 60, 96, id="up"),
    pytest.param(100, 70, 16, id="down"),
    pytest.param(28, 90, 33, id="wide, odd"),
    pytest.param(5, 7, 50, id="tiny"),
]


@pytest.mark.parametrize(("height", "width", "size"), _CROPS)
@pytest.mark.parametrize("channels", [1, 3])
def test_resized_crops_equal_torchvisions(
    height: int, width: int, size: int, channels: int
) -> None:
    images = _images(12, channels, height, width)
    boxes = torch.from_numpy(_boxes(height, width, 12, (0.02, 1.0), (0.3, 3.0)))
    theirs = _reference_crops(images, boxes, size)
    _assert_close(resized_crop(images, boxes, size), theirs, _FLOAT32)


@pytest.mark.parametrize(("height", "width", "size"), [(300, 400, 224), (500, 375, 96)])
def test_resized_crops_of_photos_equal_torchvisions(height: int, width: int, size: int) -> None:
    """In double precision: at these sizes torchvision's own single precision is 2e-5 off."""
    images = _images(4, 3, height, width, dtype=torch.float64)
    boxes = torch.from_numpy(_boxes(height, width, 4, (0.05, 1.0)))
    ours = resized_crop(images, boxes, size)
    _assert_close(ours, _reference_crops(images, boxes, size), _FLOAT64)
    _assert_close(resized_crop(images.float(), boxes, size).double(), ours, 1e-4)


def test_a_crop_of_one_pixel_is_that_color() -> None:
    images = _images(2, 3, 9, 9)
    views = resized_crop(images, torch.tensor([[8, 8, 1, 1], [0, 3, 1, 1]]), 6)
    _assert_close(views[0], images[0, :, 8:, 8:].expand(3, 6, 6), 1e-7)
    _assert_close(views[1], images[1, :, :1, 3:4].expand(3, 6, 6), 1e-7)


def test_nothing_outside_the_box_is_seen() -> None:
    images = torch.zeros(1, 1, 20, 20)
    images[:, :, 5:12, 4:15] = 1
    for size in (3, 11, 40):
        view = resized_crop(images, torch.tensor([[5, 4, 7, 11]]), size)
        _assert_close(view, torch.ones(1, 1, size, size), 1e-6)


def test_the_flip_mirrors_the_images_it_is_asked_for() -> None:
    images = _images(6, 3, 24, 31)
    boxes = torch.from_numpy(_boxes(24, 31, 6))
    flip = torch.tensor([True, False, True, True, False, False])
    plain, flipped = resized_crop(images, boxes, 20), resized_crop(images, boxes, 20, flip)
    _assert_close(flipped[flip], reference.hflip(plain[flip]), 1e-6)
    assert torch.equal(flipped[~flip], plain[~flip])


def _reference_crops(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    return torch.stack(
        [
            reference.resized_crop(image, *box, [size, size], antialias=True)
            for image, box in zip(images, boxes.tolist(), strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("height", "width", "kernel"), [(32, 32, 3), (24, 40, 9), (12, 50, 23), (3, 3, 5), (2, 2, 3)]
)
def test_blurs_equal_torchvisions(height: int, width: int, kernel: int) -> None:
    images = _images(5, 3, height, width)
    sigma = torch.tensor([0.1, 0.5, 1.0, 2.0, 7.0])
    theirs = torch.stack(
        [
            reference.gaussian_blur(image, [kernel, kernel], [s, s])
            for image, s in zip(images, sigma.tolist(), strict=True)
        ]
    )
    _assert_close(gaussian_blur(images, sigma, kernel), theirs, _FLOAT32)


def test_a_blur_leaves_a_plain_color_alone() -> None:
    images = _images(4, 3, 1, 1).expand(4, 3, 30, 30)
    _assert_close(gaussian_blur(images, torch.linspace(0.1, 5, 4), 11), images, 1e-6)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (32, 32), (21, 40), (50, 33)])
@pytest.mark.parametrize(
    ("angle", "shear", "zoom", "shift"),
    [
        (0.0, 0.0, 1.0, (0.0, 0.0)),
        (30.0, 0.0, 1.0, (0.0, 0.0)),
        (0.0, 20.0, 1.0, (0.0, 0.0)),
        (0.0, 0.0, 1.3, (0.0, 0.0)),
        (0.0, 0.0, 1.0, (3.0, -2.0)),
        (-15.0, 8.0, 0.8, (1.0, 4.0)),
        (-75.0, -25.0, 1.2, (-0.6, 2.3)),
    ],
)
def test_affine_maps_equal_torchvisions(
    height: int,
    width: int,
    angle: float,
    shear: float,
    zoom: float,
    shift: tuple[float, float],
) -> None:
    """torchvision's annotation asks for whole pixels; its tensor code takes parts of them too."""
    images = _images(1, 3, height, width)
    ours = affine(images, _one(angle), _one(shear), _one(zoom), torch.tensor([shift]))
    theirs = _reference_affine(images, angle, shear, zoom, shift)
    _assert_close(ours, theirs, 1e-4)


@settings(max_examples=50)
@given(
    st.floats(-180, 180), st.floats(-40, 40), st.floats(0.5, 2), st.floats(-9, 9), st.floats(-9, 9)
)
def test_any_affine_map_equals_torchvisions(
    angle: float, shear: float, zoom: float, right: float, down: float
) -> None:
    """On a smooth image, where the rounding of a coordinate does not matter."""
    y, x = torch.meshgrid(torch.arange(20) / 20, torch.arange(30) / 30, indexing="ij")
    images = torch.nn.functional.pad((torch.sin(3 * x) * torch.cos(2 * y))[None, None], [4] * 4)
    ours = affine(images, _one(angle), _one(shear), _one(zoom), torch.tensor([(right, down)]))
    _assert_close(ours, _reference_affine(images, angle, shear, zoom, (right, down)), 1e-4)


def test_each_image_has_its_own_affine_map() -> None:
    images = _images(5, 1, 16, 16)
    angle, shear = torch.linspace(-40, 40, 5), torch.linspace(10, -10, 5)
    zoom, shift = torch.linspace(0.7, 1.4, 5), torch.linspace(-3, 3, 10).view(5, 2)
    together = affine(images, angle, shear, zoom, shift)
    for i in range(5):
        row = slice(i, i + 1)
        alone = affine(images[row], angle[row], shear[row], zoom[row], shift[row])
        _assert_close(together[row], alone, 1e-6)


def test_a_shift_to_the_right_and_down_moves_pixels_so() -> None:
    images = _images(1, 1, 10, 10)
    moved = affine(images, _one(0), _one(0), _one(1), torch.tensor([[3.0, 2.0]]))
    _assert_close(moved[:, :, 2:, 3:], images[:, :, :8, :7], 1e-5)
    _assert_close(moved[:, :, :2], torch.zeros(1, 1, 2, 10), 1e-5)
    _assert_close(moved[:, :, :, :3], torch.zeros(1, 1, 10, 3), 1e-5)


def _one(value: float) -> Tensor:
    return torch.tensor([float(value)])


def _reference_affine(
    images: Tensor, angle: float, shear: float, zoom: float, shift: tuple[float, float]
) -> Tensor:
    moved: Tensor = reference.affine(
        images,
        angle,
        list(shift),
        zoom,
        [shear, 0.0],
        interpolation=InterpolationMode.BILINEAR,
        fill=None,  # zero; an explicit [0.0] would weaken the border's pixels twice
    )
    return moved
