"""What k-NN and the linear probe share: settings with several values, and their results."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from wcl.config import ClassifyConfig
from wcl.evaluation.confusion import by_class, write_confusion
from wcl.evaluation.result import Result
from wcl.system.errors import InputError

Number = TypeVar("Number", int, float)


def setting_values(
    setting: str, value: Number | list[Number] | str, kind: Callable[[str], Number]
) -> list[Number]:
    """Return the values of a setting: a number, a list, or text with commas, in brackets or not.

    >>> setting_values("k", "10, 20", int), setting_values("temperature", 0.1, float)
    ([10, 20], [0.1])

    Raises:
        InputError: the text is not such a list.
    """
    if not isinstance(value, str):
        return list(value) if isinstance(value, list) else [value]
    parts = [part for part in value.strip("[] ").split(",") if part.strip()]
    try:
        return [kind(part) for part in parts]
    except ValueError as error:
        example = "10 or 10,20" if kind is int else "0.1 or 0.1,0.3"
        raise InputError(f"--{setting}: {value} is not a list such as {example}") from error


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
