"""Synthetic images: stand-ins for the data sets at the scale `smoke`, and input for timing."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

_CLASSES = 4
_OBJECTS = ("cat", "dog", "person")


def smoke_sources(names: Sequence[str], folder: Path) -> dict[str, str]:
    """Return the source that replaces each data set at the scale `smoke`."""
    sources = {"digits": "digits", "voc": str(folder.absolute() / "voc")}
    return {name: sources.get(name, str(folder.absolute() / "photos")) for name in names}


def write_smoke_data(folder: Path) -> None:
    """Write the images that `smoke_sources` names, unless they exist."""
    for name, write in (("photos", _write_classes), ("voc", _write_voc)):
        if (folder / name).exists():
            continue
        with TemporaryDirectory(prefix=f".{name}-", dir=folder) as unfinished:
            made = Path(unfinished) / name
            write(made)
            try:
                made.rename(folder / name)
            except OSError:
                if not (folder / name).exists():  # if it does, another process was first
                    raise


def write_photos(folder: Path, count: int) -> None:
    """Write JPEGs of 500×375 pixels: random crops of scikit-learn's two sample photos."""
    from sklearn.datasets import load_sample_images

    photos = [Image.fromarray(image) for image in load_sample_images().images]
    generator = np.random.default_rng(0)
    for number in range(count):
        photo = photos[number % len(photos)]
        left = int(generator.integers(0, photo.width - 500))
        top = int(generator.integers(0, photo.height - 375))
        crop = photo.crop((left, top, left + 500, top + 375))
        crop.save(folder / f"{number:04d}.jpg", quality=90)


def write_noise(folder: Path, count: int) -> None:
    """Write PNGs of 32×32 random pixels."""
    generator = np.random.default_rng(0)
    for number in range(count):
        pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:04d}.png")


def _write_classes(folder: Path) -> None:
    """Write photos of several sizes; each class has its own color."""
    for split, count in (("train", 8), ("test", 4)):
        for label in range(_CLASSES):
            class_folder = folder / split / f"class{label}"
            class_folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                image = _image([label, count, number])
                image.save(class_folder / f"{number:02d}.jpg", quality=90)


def _write_voc(folder: Path) -> None:
    """Write a VOC kit where each object is in about half of the images."""
    year = folder / "VOC2007"
    for part in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (year / part).mkdir(parents=True, exist_ok=True)
    for split, first in (("trainval", 0), ("test", 24)):
        numbers = range(first, first + 24)
        names = [f"{number:06d}" for number in numbers]
        (year / "ImageSets" / "Main" / f"{split}.txt").write_text(
            "\n".join(names) + "\n", encoding="utf-8"
        )
        for number, name in zip(numbers, names, strict=True):
            present = [o for bit, o in enumerate(_OBJECTS) if number >> bit & 1]
            objects = "".join(f"<object><name>{o}</name></object>" for o in present)
            annotation = f"<annotation>{objects}</annotation>"
            (year / "Annotations" / f"{name}.xml").write_text(annotation, encoding="utf-8")
            _image([number % 8, 0, number]).save(year / "JPEGImages" / f"{name}.jpg", quality=90)


def _image(seed: list[int]) -> Image.Image:
    """Return smooth patches around a color that only the first number of the seed determines."""
    color = np.random.default_rng(seed[0]).integers(60, 196, 3)
    generator = np.random.default_rng(seed)
    patches = color + generator.integers(-60, 60, (4, 5, 3))
    height, width = generator.integers(40, 60, 2)
    image = Image.fromarray(patches.astype(np.uint8))
    return image.resize((int(width), int(height)), Image.Resampling.BICUBIC)
