"""HEIC and AVIF photos."""

import io
import struct
import sys
from pathlib import Path

import pillow_heif
import pytest
import torch
from PIL import Image, features

from images import encoded, picture
from wcl.data import open_source
from wcl.data.decode import MissingPackage, UnreadableImage, open_image, whole_pixels
from wcl.data.heif import register_heif
from wcl.system.errors import InputError


def heic(image: Image.Image) -> bytes:
    register_heif()
    return encoded(image, "HEIF")


def difference(content: bytes, image: Image.Image) -> float:
    found = whole_pixels(open_image(content)).int() - whole_pixels(image).int()
    return float(found.abs().float().mean())


def test_heic_is_read_also_if_none_was_read_before(tmp_path: Path) -> None:
    photo = picture(1, 60, 80)
    (tmp_path / "photo.heic").write_bytes(heic(photo))
    (tmp_path / "other.HEIF").write_bytes(heic(picture(2, 60, 80)))
    Image.OPEN.pop("HEIF")
    register_heif.cache_clear()
    assert len(open_source(str(tmp_path))) == 2
    assert difference((tmp_path / "photo.heic").read_bytes(), photo) < 5


@pytest.mark.skipif(not features.check("avif"), reason="this build of PIL cannot read AVIF")
def test_avif_needs_no_other_package(tmp_path: Path) -> None:
    photo = picture(1, 60, 80)
    (tmp_path / "photo.avif").write_bytes(encoded(photo, "AVIF"))
    source = open_source(str(tmp_path))
    assert isinstance(source.image(0), Image.Image)
    assert difference(encoded(photo, "AVIF"), photo) < 5


def test_a_turned_photo_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = picture(3, 40, 64)
    heif = pillow_heif.from_pillow(photo)
    turned = pillow_heif.from_pillow(photo.transpose(Image.Transpose.ROTATE_90))
    turned.info["exif"] = exif.tobytes()
    assert whole_pixels(open_image(_saved(heif))).shape == (3, 40, 64)
    assert whole_pixels(open_image(_saved(turned))).shape == (3, 40, 64)


def _saved(heif: pillow_heif.HeifFile) -> bytes:
    file = io.BytesIO()
    heif.save(file, quality=90)
    return file.getvalue()


def test_without_pillow_heif_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.heic").write_bytes(heic(picture(0)))
    register_heif.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(MissingPackage, match=r"needs pillow_heif; pip install .*\[heif\]"):
        open_image(tmp_path / "a.heic")
    with pytest.raises(InputError, match=r"a\.heic: needs pillow_heif"):
        open_source(str(tmp_path))


def test_a_bomb_is_refused_in_one_line() -> None:
    """It says that it has 40,000 × 40,000 pixels."""
    content = heic(picture(0, 64, 64))
    size, huge = struct.pack(">II", 64, 64), struct.pack(">II", 40_000, 40_000)
    assert b"ispe\0\0\0\0" + size in content
    with pytest.raises(UnreadableImage, match=r"^[^\n]+$"):
        whole_pixels(open_image(content.replace(size, huge)))
    assert torch.is_tensor(whole_pixels(open_image(content)))
