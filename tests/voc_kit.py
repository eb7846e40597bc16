"""VOC development kits that the tests make for themselves."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from images import picture

Objects = Sequence[str]
"""Names of an image's objects; a difficult one ends with a question mark."""


def annotation(objects: Objects) -> str:
    things = "".join(
        f"<object><name>{name.rstrip('?')}</name><difficult>{int(name.endswith('?'))}</difficult>"
        "<bndbox><xmin>1</xmin></bndbox></object>"
        for name in objects
    )
    return f"<annotation><folder>VOC2007</folder>{things}</annotation>"


def voc_kit(root: Path, lists: Mapping[str, Mapping[str, Objects]]) -> Path:
    """A VOCdevkit folder with these lists of images and their objects."""
    year = root / "VOC2007"
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (year / folder).mkdir(parents=True)
    for image_set, images in lists.items():
        (year / "ImageSets" / "Main" / f"{image_set}.txt").write_text("\n".join(images) + "\n")
        for name, objects in images.items():
            (year / "Annotations" / f"{name}.xml").write_text(annotation(objects))
            seed = zlib.crc32(name.encode())
            photo = picture(seed, 40 + seed % 17, 50 + seed % 23)
            photo.save(year / "JPEGImages" / f"{name}.jpg", quality=90)
    return root


def scenes(count: int, start: int = 0) -> dict[str, list[str]]:
    """Images with cats, dogs and people in many combinations, some of them difficult."""
    generator = np.random.default_rng(start)
    found = {}
    for i in range(start, start + count):
        has = generator.random(3) < 0.5
        names = [n for n, h in zip(("cat", "dog", "person"), has, strict=True) if h]
        found[f"{i:06d}"] = [f"{n}?" if generator.random() < 0.15 else n for n in names]
    return found
