"""The data sets that the tables need: where the user has them, or made-up ones."""

import re
from collections.abc import Sequence

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
