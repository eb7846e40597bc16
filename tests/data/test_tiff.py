"""TIFF files with every number of channels, as other programs write them."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tifffile import TiffFile, imwrite

from wcl.data import in_memory, open_source
from wcl.data.crops import cut_boxes, reduced
from wcl.data.decode import (
    MissingPackage,
    UnreadableImage,
    center_crop,
    open_image,
    upright_size,
    whole_pixels,
)
from wcl.data.source import ArraySource
from wcl.system.errors import InputError

SEPARATE = {"planarconfig": "separate", "photometric": "minisblack"}
CONTIGUOUS = {"planarconfig": "contig", "photometric": "minisblack"}


def values(channels: int, dtype: Any = np.uint8, height: int = 20, width: int = 30) -> Any:
    random = np.random.default_rng(channels)
    return random.integers(0, 200, (channels, height, width)).astype(dtype)


def tiff(array: Any, **layout: Any) -> bytes:
    file = io.BytesIO()
    imwrite(file, array, **layout)
    return file.getvalue()


def last(array: Any) -> Any:
    return np.ascontiguousarray(array.transpose(1, 2, 0))


LAYOUTS = {
    "separate planes": lambda a: tiff(a, **SEPARATE),
    "samples": lambda a: tiff(last(a), **CONTIGUOUS),
    "lzw": lambda a: tiff(a, **SEPARATE, compression="lzw", predictor=True),
    "zlib": lambda a: tiff(a, **SEPARATE, compression="zlib"),
    "tiles": lambda a: tiff(last(a), **CONTIGUOUS, tile=(16, 16), compression="zstd"),
    "big endian": lambda a: tiff(a, **SEPARATE, byteorder=">"),
    "BigTIFF": lambda a: tiff(a, **SEPARATE, bigtiff=True),
    "ImageJ": lambda a: tiff(a, imagej=True, metadata={"axes": "CYX"}),
    "OME": lambda a: tiff(a, ome=True, metadata={"axes": "CYX"}),
    "axes": lambda a: tiff(a, photometric="minisblack", metadata={"axes": "CYX"}),
    "the first of three slices": lambda a: tiff(
        np.stack([a, a + 1, a + 2]), imagej=True, metadata={"axes": "ZCYX"}
    ),
    "RGB and more": lambda a: tiff(
        last(a), photometric="rgb", extrasamples=["unspecified"] * (len(a) - 3)
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [4, 5, 13])
def test_every_layout_has_the_channels_that_were_written(layout: str, channels: int) -> None:
    expected = values(channels)
    pixels = whole_pixels(open_image(LAYOUTS[layout](expected)), channels)
    assert torch.equal(pixels, torch.from_numpy(expected))


@pytest.mark.parametrize("dtype", ["u2", ">u2", "i2", "i4", "u4", "f4", "f8"])
def test_values_of_every_type_are_scaled_by_the_range_of_their_channel(dtype: str) -> None:
    levels = ((0.0, 100.0), (50.0, 150.0), (-10.0, 190.0), (0.0, 255.0))
    stored = values(4, np.dtype(dtype))
    pixels = whole_pixels(open_image(tiff(stored, **SEPARATE)), 4, levels)
    for channel, array, (black, white) in zip(pixels.numpy(), stored, levels, strict=True):
        share = ((array.astype(np.float64) - black) / (white - black)).clip(0, 1)
        assert np.abs(channel - 255 * share).max() <= 1


def test_color_of_16_bits_keeps_its_low_bits_and_its_transparency_is_dropped() -> None:
    """12 bits of a 16-bit color: PIL alone leaves 16 levels of them."""
    ramp = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    color = np.stack([ramp, ramp[::-1], ramp.T, ramp], axis=2)
    for samples in (3, 4):
        image = open_image(tiff(color[:, :, :samples], photometric="rgb"))
        pixels = whole_pixels(image, 3, ((0, 4095),))
        assert len(pixels[0].unique()) == 256
        assert torch.equal(pixels[0], pixels[2].T)


def test_ordinary_files_are_still_read_by_pil() -> None:
    picture = last(values(3))
    for array, layout in [
        (picture, {"photometric": "rgb"}),
        (last(values(4)), {"photometric": "rgb"}),  # with transparency
        (picture[:, :, 0], {}),
        (picture[:, :, 0].astype(np.uint16), {}),
        (values(5), {}),  # five pages, of which the first is used
    ]:
        assert isinstance(open_image(tiff(array, **layout)), Image.Image)


def test_crops_are_those_of_each_channel_alone() -> None:
    stored = values(5, height=40, width=60)
    image = open_image(tiff(stored, **SEPARATE))
    assert upright_size(image) == (40, 60)
    boxes = np.array([[3, 7, 20, 31], [0, 0, 40, 60]])
    found = [*cut_boxes(reduced(image, 1, 5), boxes, [16, 24]), center_crop(image, 32, 5)]
    for channel, array in enumerate(stored):
        gray = Image.fromarray(array)
        alone = [*cut_boxes(reduced(gray, 1, 1), boxes, [16, 24]), center_crop(gray, 32, 1)]
        for crop, expected in zip(found, alone, strict=True):
            assert torch.equal(crop[channel], expected[0])


def test_a_stated_orientation_is_applied() -> None:
    color = last(values(3)).astype(np.uint16)
    turned = open_image(tiff(color, photometric="rgb", extratags=[(274, 3, 1, 3, True)]))
    upright = open_image(tiff(color, photometric="rgb"))
    assert torch.equal(whole_pixels(turned), whole_pixels(upright).flip(1, 2))


def test_a_folder_has_the_channels_of_its_images(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.tif").write_bytes(tiff(values(5) + number, **SEPARATE))
    source = open_source(str(tmp_path))
    assert source.channels == 5
    loaded = in_memory(source)
    assert isinstance(loaded, ArraySource)
    expected = np.stack([values(5) + number for number in range(6)])
    assert torch.equal(loaded.pixels, torch.from_numpy(expected))
    assert torch.equal(whole_pixels(loaded.image(3), 5), loaded.pixels[3])


def test_images_with_different_channels_are_an_error_that_names_two(tmp_path: Path) -> None:
    (tmp_path / "four.tif").write_bytes(tiff(values(4), **SEPARATE))
    (tmp_path / "five.tif").write_bytes(tiff(values(5), **SEPARATE))
    with pytest.raises(InputError, match=r"four\.tif has 4 and .*five\.tif 5"):
        open_source(str(tmp_path))


def test_an_image_with_other_channels_than_its_source_is_unreadable() -> None:
    for wanted, image in [(5, tiff(values(4), **SEPARATE)), (3, tiff(values(4), **SEPARATE))]:
        with pytest.raises(UnreadableImage, match=f"has 4 channels, not {wanted}"):
            whole_pixels(open_image(image), wanted)
    with pytest.raises(UnreadableImage, match="has 3 channels, not 5"):
        whole_pixels(Image.new("L", (4, 4)), 5)


def test_without_tifffile_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.tif").write_bytes(tiff(values(5), **SEPARATE))
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(MissingPackage, match=r"needs tifffile; pip install .*\[tiff\]"):
        open_image(tmp_path / "a.tif")
    with pytest.raises(InputError, match=r"a\.tif: needs tifffile"):
        open_source(str(tmp_path))


@pytest.mark.parametrize("tag", ["ImageWidth", "ImageLength"])
def test_a_bomb_is_refused_in_one_line(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "bomb.tif"
    path.write_bytes(tiff(values(5, height=100, width=100), **SEPARATE, compression="zlib"))
    with TiffFile(path, mode="r+") as file:
        file.pages.first.tags[tag].overwrite(2**31)
    with pytest.raises(UnreadableImage, match=r"^[^\n]+$"):
        whole_pixels(open_image(path), 5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (tiff(values(65), **SEPARATE), "65 channels; at most 64"),
        (tiff(values(5).astype(np.complex64), **SEPARATE), "complex64"),
        (tiff(last(values(5)), **CONTIGUOUS, compression="jpegxl"), "compression"),
    ],
)
def test_what_is_not_supported_is_unreadable(content: bytes, reason: str) -> None:
    with pytest.raises(UnreadableImage, match=reason):
        open_image(content)
