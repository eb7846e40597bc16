"""What k-NN and the linear probe share: settings with several values, and their results."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from wcl.config import ClassifyConfig
from wcl.config.bounds import Bounds
from wcl.evaluation.confusion import by_class, write_confusion
from wcl.evaluation.result import Result
from wcl.system.errors import InputError

Number = TypeVar("Number", int, float)


def setting_values(
    setting: str,
    value: Number | list[Number] | str,
    kind: Callable[[str | Number], Number],
    bounds: Bounds,
) -> list[Number]:
    """Return the values of a setting: a number, a list, or text with commas, in brackets or not.

    >>> setting_values("k", "10, 20", int, Bounds(1))
    [10, 20]

    Raises:
        InputError: there is no such value, or one is out of bounds.
    """
    if isinstance(value, str):
        parts: Sequence[str | Number] = value.strip("[] ").split(",")
    else:
        parts = value if isinstance(value, list) else [value]
    try:
        values = [kind(part) for part in parts]
    except ValueError:
        values = []
    if not values or not all(map(bounds.allow, values)):
        raise InputError(
            f"--{setting}: {value} is not a number or several such as 1,2, each {bounds}"
        )
    return values


def classification_result(
    protocol: str,
    config: ClassifyConfig,
    n_train: int,
    predicted: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    sweep: list[dict[str, Any]],
    details: dict[str, Any],
) -> Result:
    """Return the result of the first of several settings, and write its confusion matrix.

    Args:
        protocol: its name.
        config: its settings.
        n_train: number of training images.
        predicted, labels: (n,) classes of the test images by the first setting.
        classes: names of the classes.
        sweep: one row with "top1" for each setting.
        details: other values.
    """
    write_confusion(config, predicted, labels, classes)
    if len(sweep) > 1:
        details |= {"sweep": sweep, "best_on_test": max(row["top1"] for row in sweep)}
    return Result(
        protocol,
        sweep[0]["top1"],
        n_train,
        len(labels),
        details,
        by_class(predicted, labels, classes) if config.per_class else [],
    )
