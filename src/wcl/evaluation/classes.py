"""Where a classifier is right and where it is not: accuracy by class, and who is taken for whom."""

import csv
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wcl.config import ClassifyConfig
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, must_be_new
from wcl.system.paths import expanded
from wcl.system.progress import say

_MOST_IN_TABLE = 10_000  # classes; a million would need terabytes


def by_class(predicted: Tensor, labels: Tensor, classes: Sequence[str]) -> list[dict[str, Any]]:
    """One row per class of the test images: how many there are, and the share found."""
    labels = labels.cpu()
    right = predicted.cpu() == labels
    images = torch.bincount(labels)
    found = torch.bincount(labels[right], minlength=len(images))
    return [
        {"class": classes[number], "images": int(images[number]), "top1": float(share)}
        for number, share in enumerate(found / images)
        if images[number]
    ]


def confusion(predicted: Tensor, labels: Tensor, class_count: int) -> Tensor:
    """(true class, predicted class) numbers of images."""
    pairs = labels.cpu() * class_count + predicted.cpu()
    return torch.bincount(pairs, minlength=class_count**2).view(class_count, class_count)


def check_confusion(config: ClassifyConfig) -> None:
    """Raise InputError, before anything is computed, if the table could not be written."""
    if not config.confusion:
        return
    path = expanded(config.confusion)
    if not path.parent.is_dir():
        raise InputError(
            f"--confusion: {path} is in a folder that does not exist; choose another file"
        )
    must_be_new(path, "--confusion")


def write_confusion(
    config: ClassifyConfig, predicted: Tensor, labels: Tensor, classes: Sequence[str]
) -> None:
    """Write the table as CSV if it was asked for: a line per true class, a column per predicted."""
    if not config.confusion:
        return
    if len(classes) > _MOST_IN_TABLE:
        raise InputError(
            f"--confusion: a table of {len(classes):,} classes would be too large; leave it out"
        )
    table = confusion(predicted, labels, len(classes)).tolist()
    path = expanded(config.confusion)
    with (
        atomic_write(path) as unfinished,
        unfinished.open("w", newline="", errors="replace") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["true \\ predicted", *classes])
        writer.writerows([name, *row] for name, row in zip(classes, table, strict=True))
    say(f"wrote {path}")
