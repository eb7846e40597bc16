"""The data sets that tables need, and where the user has them."""

import re
from collections.abc import Mapping, Sequence

from wcl.config import PretrainConfig
from wcl.data import absolute, open_splits
from wcl.paper.tables import Cell
from wcl.system.errors import InputError

WHERE = {
    "digits": "handwritten digits; included in scikit-learn",
    "cifar10": "CIFAR-10; downloaded automatically, or a folder that contains it",
    "cifar100": "CIFAR-100; downloaded automatically, or a folder that contains it",
    "imagenet": "ImageNet-1k (image-net.org, after registration): a folder with train and val, "
    "each with one subfolder per class",
    "voc": "PASCAL VOC 2007, trainval and test (host.robots.ox.ac.uk/pascal/VOC): VOCdevkit",
}
"""Every data set by its name, and where to get it."""
_IMAGES = {"digits": 1_297, "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}
_IMAGENET_CLASSES = 1_000
_OPENED_BY_NAME = ("digits", "cifar10", "cifar100")


def needed(cells: tuple[Cell, ...]) -> list[str]:
    """Return the names of the data sets that cells need."""
    names = (name for cell in cells for name in (cell.run.data, cell.measure.data) if name)
    return list(dict.fromkeys(names))


def given(names: list[str], data: str, others: Sequence[str] = ()) -> dict[str, str]:
    """Return the source of each data set.

    Args:
        names: data sets of the cells to make.
        data: the option: `SRC` for a single data set, `NAME=SRC,NAME=SRC` for several.
        others: data sets of the table's other rows, which may be given too.

    Raises:
        InputError: a data set is given that the table does not use, or without its name.
    """
    found = {name: name for name in (*names, *others) if name in _OPENED_BY_NAME}
    parts = re.split(rf",(?=(?:{'|'.join(WHERE)})=)", data) if data else []
    for part in parts:
        name, equals, source = part.partition("=")
        if not equals or name not in WHERE:
            if len(names) > 1:
                several = ",".join(f"{name}=SRC" for name in names)
                raise InputError(f"--data: {part}: name the data set, as in --data {several}")
            name, source = names[0], part
        if name not in (*names, *others):
            raise InputError(f"--data: {name} is not used here; give {', '.join(names)}")
        found[name] = absolute(source)
    return found


def check(names: list[str], found: Mapping[str, str]) -> None:
    """Raise InputError if a data set is missing or has no labels."""
    for name in names:
        if name not in found:
            value = "SRC" if len(names) == 1 else f"{name}=SRC"
            raise InputError(f"--data: is missing; give --data {value}: {WHERE[name]}")
        for split in open_splits(found[name]):
            if (split.multi_labels if name == "voc" else split.labels) is None:
                raise InputError(f"--data: {found[name]} has no labels; expected {WHERE[name]}")


def images_per_epoch(settings: PretrainConfig, data: str, scale: str) -> int:
    """Return the number of images of an epoch, from the published sizes of the data sets."""
    if scale == "smoke" and data != "digits":
        return 32
    images = _IMAGES[data]
    if settings.classes:
        images = images * settings.classes // _IMAGENET_CLASSES
    return min(images, settings.limit) if settings.limit else images
