"""The data sets that the tables need: where the user has them, or made-up ones."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from wcl.data import absolute, open_splits
from wcl.paper.tables import Cell
from wcl.system.errors import InputError

WHERE = {
    "digits": "handwritten digits; come with scikit-learn",
    "cifar10": "CIFAR-10; downloaded by itself, or a folder that has it",
    "cifar100": "CIFAR-100; downloaded by itself, or a folder that has it",
    "imagenet": "ImageNet-1k (image-net.org, after registering): a folder with train and val, one "
    "sub-folder per class in each",
    "voc": "PASCAL VOC 2007, trainval and test (host.robots.ox.ac.uk/pascal/VOC): VOCdevkit",
}
"""Every data set by its name, and where to get it."""
MADE_UP = "made-up pictures stand in for all data sets but the digits; none is needed"
_BY_NAME = ("digits", "cifar10", "cifar100")  # that the name alone opens
_MADE_UP_CLASSES = 4
_MADE_UP_OBJECTS = ("cat", "dog", "person")


def needed(cells: tuple[Cell, ...]) -> list[str]:
    """The names of the data sets that cells need."""
    names = (name for cell in cells for name in (cell.run.data, cell.measure.data) if name)
    return list(dict.fromkeys(names))


def where(names: list[str]) -> str:
    """Where to get data sets, a line for each."""
    return "\n".join(f"{name}: {WHERE[name]}" for name in names)


def given(names: list[str], data: str, others: Sequence[str] = ()) -> dict[str, str]:
    """Where each data set is: `--data SRC` if there is one, else `--data NAME=SRC,NAME=SRC`.

    Args:
        names: of the data sets that are needed now.
        data: the option.
        others: that the table has besides, of which rows may be there already.

    Raises:
        InputError: one is given that is not needed, or it is not said which it is.
    """
    found = {name: name for name in (*names, *others) if name in _BY_NAME}
    parts = re.split(rf",(?=(?:{'|'.join(WHERE)})=)", data) if data else []
    for part in parts:
        name, equals, source = part.partition("=")
        if not equals or name not in WHERE:
            if len(names) > 1:
                several = ",".join(f"{name}=SRC" for name in names)
                raise InputError(f"--data: {part}: say which it is, as in --data {several}")
            name, source = names[0], part
        if name not in (*names, *others):
            raise InputError(f"--data: {name} is not needed here, but {', '.join(names)}")
        found[name] = absolute(source)
    return found


def check(names: list[str], found: dict[str, str]) -> None:
    """Raise InputError if a data set is missing or is not what it should be."""
    for name in names:
        if name not in found:
            word = "SRC" if len(names) == 1 else f"{name}=SRC"
            raise InputError(f"--data: is missing; --data {word} is {WHERE[name]}")
        for split in open_splits(found[name]):
            if (split.multi_labels if name == "voc" else split.labels) is None:
                raise InputError(f"--data: {found[name]} has not the labels of {WHERE[name]}")


def made_up(names: list[str], folder: Path) -> dict[str, str]:
    """Where pictures of colors are, or will be, that stand in for all but the digits."""
    places = {"digits": "digits", "voc": str(folder.absolute() / "voc")}
    return {name: places.get(name, str(folder.absolute() / "photos")) for name in names}


def write_made_up(folder: Path) -> None:
    """Write these pictures, unless they are there already."""
    for name, write in (("photos", _write_photos), ("voc", _write_kit)):
        if not (folder / name).exists():
            write(folder / f".{name}.tmp")
            (folder / f".{name}.tmp").rename(folder / name)


def _write_photos(folder: Path) -> None:
    """Four classes of different colors, photos of many sizes."""
    for split, count in (("train", 8), ("test", 4)):
        for label in range(_MADE_UP_CLASSES):
            place = folder / split / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                _picture([label, count, number]).save(place / f"{number:02d}.jpg", quality=90)


def _write_kit(folder: Path) -> None:
    """VOC's layout; the first objects are in half of the images, each in others."""
    year = folder / "VOC2007"
    for part in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (year / part).mkdir(parents=True, exist_ok=True)
    for split, first in (("trainval", 0), ("test", 24)):
        numbers = range(first, first + 24)
        names = [f"{number:06d}" for number in numbers]
        (year / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names) + "\n")
        for number, name in zip(numbers, names, strict=True):
            has = [o for bit, o in enumerate(_MADE_UP_OBJECTS) if number >> bit & 1]
            things = "".join(f"<object><name>{o}</name></object>" for o in has)
            annotation = f"<annotation>{things}</annotation>"
            (year / "Annotations" / f"{name}.xml").write_text(annotation)
            _picture([number % 8, 0, number]).save(year / "JPEGImages" / f"{name}.jpg", quality=90)


def _picture(seed: list[int]) -> Image.Image:
    """Smooth patches about a color that depends on the first number alone."""
    color = np.random.default_rng(seed[0]).integers(60, 196, 3)
    generator = np.random.default_rng(seed)
    patches = color + generator.integers(-60, 60, (4, 5, 3))
    height, width = generator.integers(40, 60, 2)
    image = Image.fromarray(patches.astype(np.uint8))
    return image.resize((int(width), int(height)), Image.Resampling.BICUBIC)
