"""Images and folders that the tests make for themselves."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, height: int = 48, width: int = 64) -> Image.Image:
    """A smooth colored picture: what JPEG and resizing are made for."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def save_jpeg(path: Path, image: Image.Image, orientation: int = 1) -> None:
    """As a camera does that was held that way (an orientation of EXIF)."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(path, "JPEG", quality=95, exif=exif)


def photo_folder(root: Path, classes: Sequence[str] = ("cat", "dog"), each: int = 12) -> Path:
    """A folder of small JPEGs of many sizes, one sub-folder per class."""
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(each):
            seed = 1000 * number + i
            image = picture(seed, 40 + seed % 17, 50 + seed % 23)
            image.save(root / name / f"{i:03d}.jpg", quality=90)
    return root


def flat_folder(root: Path, count: int = 8) -> Path:
    root.mkdir(parents=True)
    for i in range(count):
        picture(i).save(root / f"{i}.png")
    return root
