import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch import Tensor

from wcl.data.crops import cut_boxes, reduced, reduction
from wcl.data.decode import (
    UnreadableImage,
    center_crop,
    decoded,
    open_image,
    upright_size,
    whole_pixels,
)
from wcl.data.planes import Picture

pytestmark = pytest.mark.usefixtures("pil_resizes")

_BILINEAR = Image.Resampling.BILINEAR
_ORIENTATION = 0x0112


def _photo(width: int, height: int) -> Image.Image:
    """Smooth colors with some detail, unlike itself under every flip and turn."""
    y, x = np.mgrid[0:height, 0:width]
    y, x = y / height, x / width
    channels = [
        128 + 90 * np.sin(7 * x + 2 * y) + 30 * np.sin(40 * x * y),
        255 * x * (1 - y / 2),
        255 * y * np.cos(x),
    ]
    return Image.fromarray(np.stack(channels, axis=2).clip(0, 255).astype(np.uint8))


def _encoded(image: Image.Image, kind: str, orientation: int = 1) -> bytes:
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    options = {"quality": 95} if kind == "JPEG" else {}
    file = io.BytesIO()
    image.save(file, kind, exif=exif, **options)
    return file.getvalue()


def _upright(data: bytes) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")


def _tensor(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def _cut(
    data: bytes, boxes: list[tuple[int, int, int, int]], sizes: list[int], channels: int = 3
) -> list[Tensor]:
    return _cut_views(open_image(data), boxes, sizes, channels)


def _cut_views(
    image: Picture,
    boxes: list[tuple[int, int, int, int]],
    sizes: list[int],
    channels: int = 3,
) -> list[Tensor]:
    table = np.array(boxes)
    return cut_boxes(reduced(image, reduction(table, sizes), channels), table, sizes)


def _cut_by_pil(image: Image.Image, box: tuple[int, int, int, int], size: int) -> Tensor:
    top, left, height, width = box
    crop = image.crop((left, top, left + width, top + height))
    return _tensor(crop.resize((size, size), _BILINEAR))


def _difference(a: Tensor, b: Tensor) -> float:
    """Mean over the pixels of the absolute difference, in steps of a byte."""
    assert a.shape == b.shape
    return (a.int() - b.int()).abs().float().mean().item()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
def test_views_are_pils_crop_and_then_resize(kind: str) -> None:
    data = _encoded(_photo(120, 90), kind)
    boxes = [(10, 20, 50, 60), (0, 0, 90, 120), (89, 119, 1, 1), (5, 0, 85, 17)]
    sizes = [32, 96, 8, 64]
    views = _cut(data, boxes, sizes)
    for view, box, size in zip(views, boxes, sizes, strict=True):
        assert view.dtype == torch.uint8
        assert torch.equal(view, _cut_by_pil(_upright(data), box, size))


@pytest.mark.parametrize(("width", "height"), [(1600, 1200), (1200, 1600), (1501, 1003)])
@pytest.mark.parametrize("reduction", [2, 4, 8])
def test_decoding_at_reduced_scale_gives_nearly_the_same_pixels(
    width: int, height: int, reduction: int
) -> None:
    """Within 1.5 steps of a byte on average; sides that the scale does not divide are worst."""
    data = _encoded(_photo(width, height), "JPEG")
    side = 96 * reduction
    corner = (height - side, width - side, side, side)
    boxes = [(100, 200, side, side), (0, 0, height, width), corner]
    opened = open_image(data)
    views = _cut_views(opened, boxes, [96, 96, 96])
    assert opened.width == -(-width // reduction)  # it was indeed decoded at that scale
    for view, box in zip(views, boxes, strict=True):
        assert view.shape == (3, 96, 96)
        assert _difference(view, _cut_by_pil(_upright(data), box, 96)) < 1.5


def test_the_smallest_crop_decides_the_scale_of_decoding() -> None:
    data = _encoded(_photo(1600, 1200), "JPEG")
    opened = open_image(data)
    boxes = [(0, 0, 1200, 1600), (300, 500, 100, 150)]
    views = _cut_views(opened, boxes, [96, 96])
    assert opened.size == (1600, 1200)
    for view, box in zip(views, boxes, strict=True):
        assert torch.equal(view, _cut_by_pil(_upright(data), box, 96))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_views_are_upright(kind: str, orientation: int) -> None:
    data = _encoded(_photo(120, 80), kind, orientation)
    box = (12, 7, 60, 50)
    (view,) = _cut(data, [box], [40])
    assert torch.equal(view, _cut_by_pil(_upright(data), box, 40))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_views_decoded_at_reduced_scale_are_upright(orientation: int) -> None:
    data = _encoded(_photo(1200, 800), "JPEG", orientation)
    box = (120, 70, 600, 500)
    (view,) = _cut(data, [box], [64])
    assert _difference(view, _cut_by_pil(_upright(data), box, 64)) < 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("width", "height"), [(120, 80), (1200, 800)])
@pytest.mark.parametrize("size", [32, 224])
def test_the_center_is_upright(orientation: int, width: int, height: int, size: int) -> None:
    data = _encoded(_photo(width, height), "JPEG", orientation)
    expected = _center_by_pil(_upright(data), size)
    assert _difference(center_crop(open_image(data), size), expected) < 1


@pytest.mark.parametrize("orientation", [0, 9, 200])
def test_orientations_that_do_not_exist_are_ignored(orientation: int) -> None:
    photo = _photo(40, 30)
    data = _encoded(photo, "PNG", orientation)
    assert torch.equal(whole_pixels(open_image(data)), _tensor(photo))


def test_exif_that_makes_no_sense_is_ignored() -> None:
    file = io.BytesIO()
    _photo(40, 30).save(file, "JPEG", exif=b"Exif\0\0no such thing")
    assert upright_size(open_image(file.getvalue())) == (30, 40)
    assert whole_pixels(open_image(file.getvalue())).shape == (3, 30, 40)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_is_known_before_decoding(orientation: int) -> None:
    image = open_image(_encoded(_photo(50, 30), "JPEG", orientation))
    height, width = upright_size(image)
    assert decoded(image).size == (width, height)


def _center_by_pil(image: Image.Image, size: int) -> Tensor:
    shorter = {224: 256, 32: 32}[size]
    scale = shorter / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), _BILINEAR)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return _tensor(image.crop((left, top, left + size, top + size)))


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize(("width", "height"), [(100, 60), (60, 100), (300, 300), (501, 333)])
def test_the_center_is_that_of_the_resized_image(width: int, height: int, size: int) -> None:
    photo = _photo(width, height)
    center = center_crop(open_image(_encoded(photo, "PNG")), size)
    assert torch.equal(center, _center_by_pil(photo, size))


@pytest.mark.parametrize(("width", "height"), [(1600, 1100), (1100, 1600), (3000, 1100)])
def test_large_jpegs_are_decoded_at_reduced_scale_for_their_center(width: int, height: int) -> None:
    """Wide or tall alike, and within one step of a byte on average."""
    data = _encoded(_photo(width, height), "JPEG")
    opened = open_image(data)
    center = center_crop(opened, 224)
    assert opened.size == (width // 4, height // 4)
    assert _difference(center, _center_by_pil(_upright(data), 224)) < 1


def test_an_image_of_the_right_size_is_left_alone() -> None:
    for size in (32, 224):
        photo = _photo(size, size)
        assert torch.equal(center_crop(open_image(_encoded(photo, "PNG")), size), _tensor(photo))


@pytest.mark.parametrize("size", [32, 96, 224])
@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (500, 3), (3, 500), (1, 64), (2000, 30), (31, 33)]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_extreme_shapes_give_the_right_shape(
    width: int, height: int, size: int, channels: int
) -> None:
    data = _encoded(_photo(width, height), "PNG")
    assert center_crop(open_image(data), size, channels).shape == (channels, size, size)
    (view,) = _cut(data, [(0, 0, height, width)], [size], channels)
    assert view.shape == (channels, size, size)
    assert whole_pixels(open_image(data), channels).shape == (channels, height, width)


def _saved(image: Image.Image, kind: str) -> Picture:
    file = io.BytesIO()
    image.save(file, kind)
    return open_image(file.getvalue())


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("1", "PNG"),
        ("L", "PNG"),
        ("L", "JPEG"),
        ("LA", "PNG"),
        ("P", "PNG"),
        ("P", "GIF"),
        ("RGB", "JPEG"),
        ("RGBA", "PNG"),
        ("RGBA", "WEBP"),
        ("CMYK", "JPEG"),
        ("CMYK", "TIFF"),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_comes_out_with_the_wanted_channels(mode: str, kind: str, channels: int) -> None:
    """And looks as before it was saved: JPEG and WebP lose up to 3 steps of a byte on average."""
    photo = _photo(160, 120)
    stored, expected = photo.convert(mode), photo.convert(mode).convert("RGB")
    pixels = whole_pixels(_saved(stored, kind), channels)
    assert pixels.dtype == torch.uint8
    assert _difference(pixels, _tensor(expected.convert("L" if channels == 1 else "RGB"))) < 3
    assert center_crop(_saved(stored, kind), 32, channels).shape == (channels, 32, 32)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_gray_of_sixteen_bits_keeps_its_range(kind: str, channels: int) -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    pixels = whole_pixels(_saved(Image.fromarray(ramp), kind), channels)
    assert torch.equal(pixels, torch.arange(256).byte().view(1, 16, 16).repeat(channels, 1, 1))


def test_transparency_is_dropped_not_drawn() -> None:
    photo = _photo(40, 30)
    clear = photo.convert("RGBA")
    clear.putalpha(0)
    assert torch.equal(whole_pixels(_saved(clear, "PNG")), _tensor(photo))


@pytest.mark.parametrize("data", [b"", b"not an image", b"\xff\xd8", b"\x89PNG\r\n\x1a\n"])
def test_what_is_not_an_image_is_unreadable(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match=r"."):
        open_image(data)
    file = tmp_path / "image.jpg"
    file.write_bytes(data)
    with pytest.raises(UnreadableImage, match=r"."):
        open_image(file)


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match="no such file"):
        open_image(tmp_path / "missing.jpg")
    with pytest.raises(UnreadableImage, match=r"."):
        open_image(tmp_path)


def test_a_file_reads_like_its_bytes(tmp_path: Path) -> None:
    data = _encoded(_photo(40, 30), "PNG")
    (tmp_path / "image").write_bytes(data)
    assert torch.equal(whole_pixels(open_image(tmp_path / "image")), whole_pixels(open_image(data)))


def _whole_view(image: Picture) -> Tensor:
    return _cut_views(image, [(0, 0, *upright_size(image))], [8])[0]


def _center(image: Picture) -> Tensor:
    return center_crop(image, 32)


_READERS: list[Callable[[Picture], Tensor]] = [_whole_view, _center, whole_pixels]
_KINDS = ["JPEG", "PNG", "GIF", "WEBP", "BMP"]
_SMALL = {kind: _encoded(_photo(30, 20), kind, orientation=6) for kind in _KINDS}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("read", _READERS)
def test_images_cut_short_are_unreadable(kind: str, read: Callable[[Picture], Tensor]) -> None:
    data = _encoded(_photo(200, 150), kind, orientation=6)
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(UnreadableImage, match=r"."):
            read(open_image(data[: int(share * len(data))]))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # PIL's, of damage
@given(
    st.sampled_from(_KINDS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=5),
    st.floats(0, 1),
    st.sampled_from(_READERS),
)
def test_damage_is_unreadable_or_harmless_but_nothing_else(
    kind: str, changes: list[tuple[int, int]], share: float, read: Callable[[Picture], Tensor]
) -> None:
    data = bytearray(_SMALL[kind])
    for position, value in changes:
        data[position % len(data)] = value
    try:
        image = open_image(bytes(data[: round(share * len(data))]))
        if image.width * image.height < 10**6:
            assert read(image).dtype == torch.uint8
    except UnreadableImage:
        return


@pytest.mark.parametrize(
    ("array", "mean"),
    [
        (np.full((4, 4), 0x8000, dtype=np.uint16), 128),
        (np.full((4, 4), 0x8000, dtype=np.int32), 128),
        (np.full((4, 4), 200, dtype=np.int32), 200),
        (np.full((4, 4), 0.5, dtype=np.float32), 127),
    ],
)
def test_deep_gray_is_scaled_and_not_cut_off(
    array: np.ndarray[Any, Any], mean: int, tmp_path: Path
) -> None:
    path = tmp_path / "deep.tif"
    Image.fromarray(array).save(path)
    assert abs(float(whole_pixels(open_image(path)).float().mean()) - mean) <= 1


_SIDES = st.tuples(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 256))


@given(st.lists(_SIDES, min_size=1, max_size=6))
def test_the_reduction_is_the_most_that_enlarges_no_crop(crops: list[tuple[int, int, int]]) -> None:
    boxes = np.array([(0, 0, height, width) for height, width, _ in crops])
    factor = reduction(boxes, [size for *_, size in crops])
    left = [min(height, width) / factor - size for height, width, size in crops]
    assert min(left) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize(
    ("factor", "expected"),
    [(0.1, 1), (1, 1), (1.9, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (50, 8)],
)
def test_a_jpeg_is_reduced_as_far_as_its_format_and_the_factor_allow(
    factor: float, expected: int, orientation: int
) -> None:
    image = reduced(open_image(_encoded(_photo(640, 480), "JPEG", orientation)), factor)
    assert image.full_size == ((480, 640) if orientation == 1 else (640, 480))
    width, height = image.full_size[1] // expected, image.full_size[0] // expected
    assert image.pixels.size == (width, height)
    assert image.bytes == 3 * width * height


def test_other_formats_are_not_reduced_and_gray_takes_a_third() -> None:
    data = _encoded(_photo(160, 120), "PNG")
    image = reduced(open_image(data), 8, channels=1)
    assert image.pixels.size == (160, 120)
    assert image.bytes == 160 * 120


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("width", "height", "most"), [(1200, 800, 1.0), (1201, 803, 1.0)])
def test_boxes_of_a_reduced_image_are_those_of_the_whole(
    width: int, height: int, most: float, orientation: int
) -> None:
    """Nearly: sides that the scale does not divide are worst. Exactly for one not reduced."""
    data = _encoded(_photo(width, height), "JPEG", orientation)
    height, width = upright_size(open_image(data))
    boxes = [(0, 0, height, width), (height - 400, width - 300, 400, 300)]
    small, whole = (
        cut_boxes(reduced(open_image(data), factor), np.array(boxes), [32, 32]) for factor in (8, 1)
    )
    for a, b, box in zip(small, whole, boxes, strict=True):
        expected = _cut_by_pil(_upright(data), box, 32)
        assert _difference(a, expected) < most
        assert torch.equal(b, expected)
