import colorsys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as reference

from wcl.augment import ViewMaker, normalization
from wcl.config import AugmentConfig
from wcl.ops.randomness import Draws, Floats, Integers, between
from wcl.system.errors import InputError

_OFF = AugmentConfig(
    scale=(1.0, 1.0),
    ratio=(1.0, 1.0),
    flip=0,
    jitter=0,
    grayscale=0,
    blur=0,
    mean=(0.0, 0.0, 0.0),
    std=(1.0, 1.0, 1.0),
)
_DIGITS = AugmentConfig(
    scale=(1.0, 1.0),
    ratio=(1.0, 1.0),
    flip=0,
    jitter=0.8,
    grayscale=0,
    blur=0.3,
    rotate=20,
    shear=10,
    zoom=(0.8, 1.2),
    shift=0.1,
    noise=0.05,
    mean=(0.5,),
    std=(0.5,),
)
_MANY = 4000
_STREAMS = ("crop", "flip", "jitter", "grey", "blur", "solarize")


def _draws(count: int, epoch: int = 0, view: int = 0, seed: int = 0) -> Draws:
    index: Integers = np.arange(count, dtype=np.int64)
    return Draws(seed, epoch, index, np.full_like(index, view))


def _images(count: int, height: int = 24, width: int = 24, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, height, width)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def _plain(color: tuple[int, int, int], count: int = _MANY, size: int = 4) -> Tensor:
    pixel = torch.tensor(color, dtype=torch.uint8).view(1, 3, 1, 1)
    return pixel.repeat(count, 1, size, size)


def _assert_happens(happened: Tensor | Floats, probability: float) -> None:
    """As often as asked, at the 0.1% level of a two-sided binomial test."""
    test = stats.binomtest(int(happened.sum()), len(happened), probability)
    assert test.pvalue > 0.001


def _one_by_one(image: Tensor, config: AugmentConfig, size: int, draws: Draws) -> Tensor:
    """The view of one image by torchvision's operations, with the parameters of its draws."""
    _, height, width = image.shape
    box = ViewMaker(config, size).boxes(np.array([height]), np.array([width]), draws)[0]
    view = reference.resized_crop(image.float() / 255, *box.tolist(), [size, size], antialias=True)
    if draws.uniform("flip", 1)[0, 0] < config.flip:
        view = reference.hflip(view)
    u = draws.uniform("jitter", 9)[0].tolist()
    if u[8] < config.jitter:
        changes = [
            lambda x: reference.adjust_brightness(x, _around_one(u[0], config.brightness)),
            lambda x: reference.adjust_contrast(x, _around_one(u[1], config.contrast)),
            lambda x: reference.adjust_saturation(x, _around_one(u[2], config.saturation)),
            lambda x: reference.adjust_hue(x, (2 * u[3] - 1) * config.hue),
        ]
        for change in sorted(range(4), key=u[4:8].__getitem__):
            view = changes[change](view)
    if draws.uniform("grey", 1)[0, 0] < config.grayscale:
        view = reference.rgb_to_grayscale(view, num_output_channels=3)
    picked, width_of_blur = draws.uniform("blur", 2)[0].tolist()
    if picked < config.blur:
        low, high = config.blur_sigma
        kernel = max(3, size // 10 // 2 * 2 + 1)
        view = reference.gaussian_blur(view, [kernel] * 2, [low + (high - low) * width_of_blur] * 2)
    if draws.uniform("solarize", 1)[0, 0] < config.solarize:
        view = reference.solarize(view, 0.5)
    angle, shear, zoom, right, down = (2 * draws.uniform("affine", 5)[0] - 1).tolist()
    if config.rotate:
        view = reference.affine(
            view,
            angle * config.rotate,
            [right * config.shift * size, down * config.shift * size],
            sum(config.zoom) / 2 + zoom * (config.zoom[1] - config.zoom[0]) / 2,
            [shear * config.shear, 0.0],
            interpolation=InterpolationMode.BILINEAR,
        )
    if config.noise:
        noise = draws.normal("noise", view.numel(), view.device).view_as(view)
        view = (view + config.noise * noise).clamp(0, 1)
    normalized: Tensor = reference.normalize(view, config.mean, config.std)
    return normalized


def _around_one(u: float, strength: float) -> float:
    low = max(0.0, 1 - strength)
    return low + (1 + strength - low) * u


_MOCO = AugmentConfig()
_SIMCLR = AugmentConfig(scale=(0.08, 1.0), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
_ALL = replace(_MOCO, solarize=0.2, rotate=20, shear=10, zoom=(0.8, 1.2), shift=0.1, noise=0.05)


@pytest.mark.parametrize("config", [_MOCO, _SIMCLR, _ALL], ids=["moco", "simclr", "everything"])
@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (40, 64, 48)])
def test_views_equal_torchvisions_operations_one_by_one(
    config: AugmentConfig, height: int, width: int, size: int
) -> None:
    images, draws = _images(150, height, width), _draws(150)
    views = ViewMaker(config, size).from_images(images, draws)
    for i in range(150):
        expected = _one_by_one(images[i], config, size, draws[i : i + 1])
        # 1e-4 on [0, 1], divided by a standard deviation of 0.22.
        torch.testing.assert_close(views[i], expected, atol=5e-4, rtol=0)


def test_views_of_photos_equal_torchvisions_operations_one_by_one() -> None:
    config = replace(_MOCO, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    crops, draws = _images(20, 64, 64), _draws(20)
    views = ViewMaker(config, 64).from_crops(crops, draws)
    for i in range(20):
        expected = _one_by_one(crops[i], config, 64, draws[i : i + 1])
        torch.testing.assert_close(views[i], expected, atol=5e-4, rtol=0)


@pytest.mark.parametrize("config", [_MOCO, _ALL], ids=["moco", "everything"])
def test_both_paths_agree_where_the_crop_is_the_whole_image(config: AugmentConfig) -> None:
    maker = ViewMaker(replace(config, scale=(1.0, 1.0), ratio=(1.0, 1.0)), 24)
    images, draws = _images(300), _draws(300)
    torch.testing.assert_close(
        maker.from_images(images, draws), maker.from_crops(images, draws), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("config", [_MOCO, _ALL], ids=["moco", "everything"])
def test_a_view_does_not_depend_on_its_batch(config: AugmentConfig) -> None:
    maker = ViewMaker(config, 32)
    images, draws = _images(300, 32, 32), _draws(300)  # more than are worked on at a time
    together = maker.from_images(images, draws)
    order = np.random.default_rng(0).permutation(300)[:170]
    mixed = Draws(draws.seed, draws.epoch, draws.index[order], draws.view[order])
    part = maker.from_images(images[torch.from_numpy(order)], mixed)
    torch.testing.assert_close(part, together[order], atol=5e-6, rtol=0)
    for i in (0, 127, 128, 299):
        alone = maker.from_images(images[i : i + 1], draws[i : i + 1])
        torch.testing.assert_close(alone, together[i : i + 1], atol=5e-6, rtol=0)


def test_seed_epoch_and_view_each_make_another_view() -> None:
    maker, images = ViewMaker(_MOCO, 24), _images(30)
    first = maker.from_images(images, _draws(30))
    assert torch.equal(first, maker.from_images(images, _draws(30)))
    for other in (_draws(30, epoch=1), _draws(30, view=1), _draws(30, seed=1)):
        changed = (maker.from_images(images, other) != first).flatten(1).any(dim=1)
        assert changed.all()


def test_switching_one_thing_off_leaves_the_others_as_they_were() -> None:
    """A view that was not blurred does not change when blur is switched off."""
    images, draws = _images(100), _draws(100)
    spared = torch.from_numpy(draws.uniform("blur", 2)[:, 0] >= 0.5)
    config = replace(_MOCO, blur_sigma=(0.5, 2.0))
    with_blur = ViewMaker(config, 24).from_images(images, draws)
    without = ViewMaker(replace(config, blur=0), 24).from_images(images, draws)
    same = (with_blur - without).flatten(1).abs().amax(dim=1) < 1e-6
    assert torch.equal(same, spared)


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.5, 1.0])
def test_flips_happen_as_often_as_asked(probability: float) -> None:
    image = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    image[..., 0] = 255
    maker = ViewMaker(replace(_OFF, flip=probability), 4)
    for make in (maker.from_images, maker.from_crops):
        views = make(image.repeat(_MANY, 1, 1, 1), _draws(_MANY))
        _assert_happens(views[:, 0, 0, 3] == 1, probability)
        assert torch.equal(views[:, 0, 0, 3] == 0, views[:, 0, 0, 0] == 1)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.8, 1.0])
def test_jitter_happens_as_often_as_asked(probability: float) -> None:
    maker = ViewMaker(replace(_OFF, jitter=probability), 4)
    images = _plain((100, 150, 50))
    views = maker.from_images(images, _draws(_MANY))
    changed = (views - images / 255).abs().flatten(1).amax(dim=1) > 1e-6
    _assert_happens(changed, probability)


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.7, 1.0])
def test_gray_happens_as_often_as_asked(probability: float) -> None:
    maker = ViewMaker(replace(_OFF, grayscale=probability), 4)
    views = maker.from_images(_plain((100, 150, 50)), _draws(_MANY))
    _assert_happens((views[:, 0] == views[:, 1]).flatten(1).all(dim=1), probability)


@pytest.mark.parametrize("probability", [0.0, 0.5, 0.9, 1.0])
def test_blur_happens_as_often_as_asked(probability: float) -> None:
    sigmas = _blur_widths(replace(_OFF, blur=probability, blur_sigma=(0.3, 2.0)))
    _assert_happens(sigmas > 0, probability)


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_solarize_happens_as_often_as_asked(probability: float) -> None:
    maker = ViewMaker(replace(_OFF, solarize=probability), 4)
    views = maker.from_images(_plain((200, 200, 200)), _draws(_MANY))
    _assert_happens(views[:, 0, 0, 0] < 0.5, probability)


def test_augmentations_happen_independently_of_each_other() -> None:
    draws = _draws(_MANY)
    streams = [draws.uniform(p, 1)[:, 0] for p in _STREAMS]
    correlations = np.corrcoef(streams) - np.eye(len(_STREAMS))
    assert np.abs(correlations).max() < 4 / _MANY**0.5


def test_brightness_is_uniform_in_its_range() -> None:
    config = replace(_OFF, jitter=1, brightness=0.4, contrast=0, saturation=0, hue=0)
    views = ViewMaker(config, 4).from_images(_plain((100, 150, 50)), _draws(_MANY))
    factors = views[:, 0, 0, 0] / (100 / 255)
    _assert_uniform(factors, 0.6, 1.4)


def test_brightness_is_never_negative() -> None:
    config = replace(_OFF, jitter=1, brightness=2.0, contrast=0, saturation=0, hue=0)
    views = ViewMaker(config, 4).from_images(_plain((50, 50, 50)), _draws(_MANY))
    _assert_uniform(views[:, 0, 0, 0] / (50 / 255), 0, 3)


def test_contrast_is_uniform_in_its_range() -> None:
    images = _plain((120, 120, 120))
    images[..., ::2] = 140
    config = replace(_OFF, jitter=1, brightness=0, contrast=0.4, saturation=0, hue=0)
    views = ViewMaker(config, 4).from_images(images, _draws(_MANY))
    _assert_uniform((views[:, 0, 0, 0] - views[:, 0, 0, 1]) / (20 / 255), 0.6, 1.4)


def test_saturation_is_uniform_in_its_range() -> None:
    config = replace(_OFF, jitter=1, brightness=0, contrast=0, saturation=0.4, hue=0)
    views = ViewMaker(config, 4).from_images(_plain((120, 140, 120)), _draws(_MANY))
    _assert_uniform((views[:, 1, 0, 0] - views[:, 0, 0, 0]) / (20 / 255), 0.6, 1.4)


def test_hue_is_uniform_in_its_range() -> None:
    config = replace(_OFF, jitter=1, brightness=0, contrast=0, saturation=0, hue=0.1)
    views = ViewMaker(config, 4).from_images(_plain((40, 200, 200)), _draws(_MANY))
    hues = [colorsys.rgb_to_hsv(*view[:, 0, 0].tolist())[0] for view in views]
    _assert_uniform(torch.tensor(hues) - 0.5, -0.1, 0.1)


def test_blur_widths_are_uniform_in_their_range() -> None:
    _assert_uniform(_blur_widths(replace(_OFF, blur=1, blur_sigma=(0.3, 2.0))), 0.3, 2.0)


@pytest.mark.parametrize(("size", "taps"), [(224, 23), (96, 9), (32, 3), (8, 3)])
def test_a_blur_reaches_a_tenth_of_the_image(size: int, taps: int) -> None:
    crops = torch.zeros(1, 3, size, size, dtype=torch.uint8)
    crops[..., size // 2, size // 2] = 255
    config = replace(_OFF, blur=1, blur_sigma=(9.0, 9.0))
    view = ViewMaker(config, size).from_crops(crops, _draws(1))[0, 0]
    assert (view > 0).any(dim=0).sum() == taps
    assert (view > 0).any(dim=1).sum() == taps


def _blur_widths(config: AugmentConfig) -> Tensor:
    """σ from the answer to a single white pixel: its neighbor is exp(−1/2σ²) as bright."""
    images = torch.zeros(_MANY, 3, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 4] = 255
    views = ViewMaker(config, 9).from_images(images, _draws(_MANY))
    return (-2 * torch.log(views[:, 0, 4, 3] / views[:, 0, 4, 4])) ** -0.5


def _assert_uniform(values: Tensor, low: float, high: float) -> None:
    slack = 1e-4 * (high - low)
    assert values.min() >= low - slack
    assert values.max() <= high + slack
    assert stats.kstest(values.double().numpy(), "uniform", (low, high - low)).pvalue > 0.01


def test_crop_areas_and_ratios_stay_in_their_ranges() -> None:
    maker = ViewMaker(replace(_OFF, scale=(0.2, 0.5), ratio=(0.75, 4 / 3)), 32)
    sizes = np.full(_MANY, 1000, dtype=np.int64)
    _, _, height, width = maker.boxes(sizes, sizes, _draws(_MANY)).T
    share, ratio = height * width / 1e6, width / height
    assert 0.199 < share.min() < 0.21
    assert 0.49 < share.max() < 0.501
    assert 0.748 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.336


def test_noise_has_the_standard_deviation_asked_for() -> None:
    images = torch.full((20, 3, 16, 16), 128, dtype=torch.uint8)
    views = ViewMaker(replace(_OFF, noise=0.1), 16).from_images(images, _draws(20))
    residual = ((views - 128 / 255) / 0.1).double().flatten().numpy()
    assert stats.kstest(residual, "norm").pvalue > 0.01


def test_noise_stays_between_black_and_white() -> None:
    images = _images(20) // 200 * 255
    views = ViewMaker(replace(_OFF, noise=0.5), 24).from_images(images, _draws(20))
    assert views.min() == 0
    assert views.max() == 1


def test_with_everything_off_a_view_is_the_image() -> None:
    images = _images(10)
    maker = ViewMaker(_OFF, 24)
    assert torch.equal(maker.from_images(images, _draws(10)), images / 255)
    assert torch.equal(maker.from_crops(images, _draws(10)), images / 255)


def test_views_are_normalized_by_mean_and_standard_deviation() -> None:
    images = _images(10)
    config = replace(_OFF, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    expected = reference.normalize(images / 255, config.mean, config.std)
    torch.testing.assert_close(ViewMaker(config, 24).from_images(images, _draws(10)), expected)


def test_digits_are_moved_as_torchvision_moves_them() -> None:
    config = replace(_DIGITS, jitter=0, blur=0, noise=0)
    images, draws = _images(20, 8, 8, channels=1), _draws(20)
    views = ViewMaker(config, 8, channels=1).from_images(images, draws)
    u = draws.uniform("affine", 5)
    angle, shear, shift = between(u[:, 0], -20, 20), between(u[:, 1], -10, 10), 0.8
    for i in range(20):
        moved = reference.affine(
            images[i] / 255,
            angle[i],
            [shift * (2 * x - 1) for x in u[i, 3:].tolist()],
            0.8 + 0.4 * u[i, 2],
            [shear[i], 0.0],
            interpolation=InterpolationMode.BILINEAR,
        )
        torch.testing.assert_close(views[i], (moved - 0.5) / 0.5, atol=1e-4, rtol=0)


@pytest.mark.parametrize("config", [_MOCO, _DIGITS], ids=["moco", "digits"])
def test_images_of_one_channel_give_views_of_one_channel(config: AugmentConfig) -> None:
    maker = ViewMaker(config, 12, channels=1)
    views = maker.from_images(_images(200, 8, 8, channels=1), _draws(200))
    assert views.shape == (200, 1, 12, 12)
    assert views.isfinite().all()
    assert (views.flatten(1).std(dim=1) > 0).all()


def test_color_settings_do_not_touch_images_of_one_channel() -> None:
    config = replace(_OFF, jitter=1, brightness=0, contrast=0, saturation=1, hue=0.5, grayscale=1)
    images = _images(20, channels=1)
    assert torch.equal(ViewMaker(config, 24, 1).from_images(images, _draws(20)), images / 255)


def test_channels_other_than_rgb_are_augmented_like_gray_images() -> None:
    config = replace(_MOCO, solarize=0.3, rotate=20, mean=(0.5,) * 5, std=(0.5,) * 5)
    images, draws = _images(40, channels=5), _draws(40)
    views = ViewMaker(config, 16, channels=5).from_images(images, draws)
    for channel in range(5):
        alone = ViewMaker(config, 16, channels=1).from_images(images[:, channel, None], draws)
        torch.testing.assert_close(views[:, channel, None], alone)


def test_more_than_three_channels_have_a_mean_and_a_deviation_of_their_own() -> None:
    assert normalization(AugmentConfig(), 4) == ((0.5,) * 4, (0.25,) * 4)
    assert normalization(AugmentConfig(), 1) == ((0.485,), (0.229,))
    given = AugmentConfig(mean=(0.1, 0.2, 0.3, 0.4), std=(1.0, 2.0, 3.0, 4.0))
    assert normalization(given, 4) == (given.mean, given.std)
    for channels, config in ((5, given), (3, _DIGITS)):
        with pytest.raises(InputError, match=f"--augment.mean: .* the {channels} channels"):
            normalization(config, channels)


@pytest.mark.parametrize("value", [0, 127, 255])
@pytest.mark.parametrize("size", [8, 33, 96])
def test_views_of_plain_images_are_finite(value: int, size: int) -> None:
    images = torch.full((16, 3, 20, 30), value, dtype=torch.uint8)
    views = ViewMaker(_ALL, size).from_images(images, _draws(16))
    assert views.shape == (16, 3, size, size)
    assert views.dtype == torch.float32
    assert views.isfinite().all()


def test_the_images_given_are_left_alone() -> None:
    images = _images(10)
    before = images.clone()
    maker = ViewMaker(_ALL, 24)
    maker.from_images(images, _draws(10))
    maker.from_crops(images, _draws(10))
    assert torch.equal(images, before)


def test_no_images_give_no_views() -> None:
    assert ViewMaker(_MOCO, 16).from_images(_images(0), _draws(0)).shape == (0, 3, 16, 16)
