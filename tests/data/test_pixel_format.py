"""The range of values of deep images, and the format that an encoder takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from images import encoded, flat_folder
from wcl.data import ArraySource, in_memory, measured_levels, open_source, subset, with_format
from wcl.data.decode import whole_pixels
from wcl.data.pixel_format import PERCENTILES
from wcl.system.errors import InputError


def deep_folder(root: Path, count: int = 5, dtype: Any = np.uint16, side: int = 40) -> Path:
    root.mkdir(exist_ok=True)
    for number in range(count):
        random = np.random.default_rng(number)
        values = random.integers(300, 4096, (side, 50)).astype(dtype)
        (root / f"{number}.tif").write_bytes(encoded(Image.fromarray(values), "TIFF"))
    return root


def stored(root: Path) -> Any:
    return np.stack([np.asarray(Image.open(file)) for file in sorted(root.iterdir())])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_the_range_is_that_of_the_percentiles_of_all_values(tmp_path: Path, dtype: Any) -> None:
    source = open_source(str(deep_folder(tmp_path, dtype=dtype)))
    expected = np.percentile(stored(tmp_path), PERCENTILES, method="nearest")
    assert measured_levels(source, 0) == (tuple(expected.tolist()),)


def test_twelve_bits_keep_all_levels_of_a_byte(tmp_path: Path) -> None:
    source = open_source(str(deep_folder(tmp_path)))
    before = whole_pixels(source.image(0))
    levels = measured_levels(source, 0)
    pixels = whole_pixels(with_format(source, 3, levels).image(0), 3, levels)
    assert (len(before.unique()), len(pixels.unique())) == (15, 256)


def test_the_sample_is_drawn_with_the_seed_and_ignores_what_is_not_finite(tmp_path: Path) -> None:
    root = deep_folder(tmp_path, 300, np.float32, side=2)
    broken = np.full((2, 50), np.nan, np.float32)
    broken[0] = np.inf
    (root / "broken.tif").write_bytes(encoded(Image.fromarray(broken), "TIFF"))
    (root / "no image.tif").write_bytes(b"")
    first, again, other = (measured_levels(open_source(str(root)), seed) for seed in (1, 1, 2))
    assert first == again != other
    assert np.isfinite(first).all()


def test_a_constant_image_has_a_range_too(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(Image.fromarray(np.full((4, 4), 7, np.uint16))))
    source = open_source(str(tmp_path))
    ((black, white),) = measured_levels(source, 0)
    assert black == 7 < white
    assert whole_pixels(source.image(0), 3, ((black, white),)).unique().tolist() == [0]


def test_bytes_have_no_range_and_ignore_one(tmp_path: Path) -> None:
    source = open_source(str(flat_folder(tmp_path / "data")))
    assert measured_levels(source, 0) == measured_levels(in_memory(source), 0) == ()
    image = whole_pixels(source.image(0))
    assert torch.equal(whole_pixels(source.image(0), 3, ((100, 120),)), image)


def test_images_in_memory_are_scaled_again_for_another_encoder(tmp_path: Path) -> None:
    source = open_source(str(deep_folder(tmp_path)))
    loaded = subset(in_memory(with_format(source, 3, ((0, 4095),))), np.array([3, 1]))
    assert isinstance(loaded, ArraySource)
    loaded.labels = torch.tensor([5, 6])
    other = with_format(loaded, 1, ((300, 1000),))
    assert isinstance(other, ArraySource)
    for row, number in enumerate((3, 1)):
        expected = whole_pixels(source.image(number), 1, ((300, 1000),))
        assert torch.equal(other.pixels[row], expected)
    assert other.labels is not None
    assert other.labels.tolist() == [5, 6]


def test_channels_that_cannot_be_converted_are_an_error() -> None:
    source = ArraySource("stains", torch.zeros(3, 5, 8, 8, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"stains: its images have 5 channels.* takes 3"):
        with_format(source, 3)
    assert with_format(source, 5) is source
