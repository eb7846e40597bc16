"""Results by class: accuracy, and the confusion matrix as a table or a plot."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wcl.config import ClassifyConfig
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, must_be_new
from wcl.system.paths import expanded, one_line, shortened
from wcl.system.plots import PLOT_SUFFIXES, plot_style, save_figure
from wcl.system.progress import log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_CLASSES_IN_TABLE = 10_000  # a million would need terabytes
_MAX_CLASSES_IN_PLOT = 1_000
_MAX_CLASSES_WITH_COUNTS = 20
_MAX_CLASSES_WITH_NAMES = 60
_MAX_NAME = 24  # characters


def by_class(predicted: Tensor, labels: Tensor, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per class of the test images: its name, its size and its accuracy."""
    labels = labels.cpu()
    right = predicted.cpu() == labels
    images = torch.bincount(labels)
    correct = torch.bincount(labels[right], minlength=len(images))
    return [
        {"class": classes[number], "images": int(images[number]), "top1": float(accuracy)}
        for number, accuracy in enumerate(correct / images)
        if images[number]
    ]


def confusion(predicted: Tensor, labels: Tensor, class_count: int) -> Tensor:
    """Count the images of each (true class, predicted class)."""
    pairs = labels.cpu() * class_count + predicted.cpu()
    return torch.bincount(pairs, minlength=class_count**2).view(class_count, class_count)


def check_confusion(config: ClassifyConfig) -> None:
    """Raise InputError, before anything is computed, if the matrix could not be written."""
    if not config.confusion:
        return
    path = expanded(config.confusion)
    if not path.parent.is_dir():
        raise InputError(
            f"--confusion: {path} is in a folder that does not exist; choose another file"
        )
    must_be_new(path, "--confusion")


def class_results(
    config: ClassifyConfig, predicted: Tensor, labels: Tensor, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """Write the confusion matrix and return the rows of `by_class`, if they were asked for."""
    if config.confusion:
        write_confusion(config.confusion, predicted, labels, classes)
    return by_class(predicted, labels, classes) if config.per_class else []


def write_confusion(file: str, predicted: Tensor, labels: Tensor, classes: Sequence[str]) -> None:
    """Write the confusion matrix: a plot by the suffix of the file, otherwise CSV."""
    path = expanded(file)
    suffix = path.suffix.lower()
    is_plot = suffix in PLOT_SUFFIXES
    limit = _MAX_CLASSES_IN_PLOT if is_plot else _MAX_CLASSES_IN_TABLE
    if len(classes) > limit:
        remedy = "write a .csv file" if is_plot else "leave it out"
        raise InputError(
            f"--confusion: {len(classes):,} classes are too many for {path.name}; {remedy}"
        )
    counts = confusion(predicted, labels, len(classes))
    with atomic_write(path) as unfinished:
        if is_plot:
            save_figure(draw_confusion(counts, classes), unfinished, suffix)
        else:
            _write_table(counts, classes, unfinished)
    log(f"wrote {path}")


def _write_table(counts: Tensor, classes: Sequence[str], path: Path) -> None:
    """Write a line per true class, with a column per predicted class."""
    with path.open("w", newline="", errors="replace", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["true \\ predicted", *classes])
        writer.writerows([name, *row] for name, row in zip(classes, counts.tolist(), strict=True))


@plot_style()
def draw_confusion(counts: Tensor, classes: Sequence[str]) -> "Figure":
    """Draw the matrix: colors are shares of the true class, numbers are images."""
    from matplotlib.figure import Figure

    count = len(classes)
    side = min(max(0.34 * count, 2.5), 9)  # inches
    figure = Figure((side + 2.2, side + 1.2), layout="constrained")
    axes = figure.subplots()
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    image = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, fraction=0.05, label="share of the true class")
    bar.outline.set_visible(False)
    axes.set(xlabel="predicted class", ylabel="true class")
    if count <= _MAX_CLASSES_WITH_NAMES:
        names = [shortened(one_line(str(name)), _MAX_NAME) for name in classes]
        size = min(9, 0.7 * 72 * side / count)
        options: dict[str, Any] = {"fontsize": size, "parse_math": False}
        upright = max(map(len, names)) > 3
        axes.set_xticks(range(count), names, rotation=90 if upright else 0, **options)
        axes.set_yticks(range(count), names, **options)
    if count <= _MAX_CLASSES_WITH_COUNTS:
        for true, predicted in counts.nonzero().tolist():
            number = int(counts[true, predicted])
            color = "white" if shares[true, predicted] > 0.5 else "black"
            size = 8 if number < 1000 else 6
            axes.text(
                predicted, true, f"{number}", ha="center", va="center", color=color, size=size
            )
    return figure
