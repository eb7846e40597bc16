"""Labeled training and test images whose classes have the same numbers."""

import torch

from wcl.config import EvalConfig
from wcl.data import Source, first_classes, in_memory, open_split, open_splits, with_format
from wcl.data.levels import Levels
from wcl.system.errors import InputError

_MAX_NAMES = 5  # classes named in a message


def labeled_splits(
    config: EvalConfig, channels: int, levels: Levels, multi_label: bool = False
) -> tuple[Source, Source]:
    """Open the training and the test images of an evaluation.

    Args:
        config: where they are.
        channels, levels: the format of the encoder's images; see `with_format`.
        multi_label: whether several labels per image are accepted.

    Raises:
        InputError: there are no images, or they do not have the labels that are needed.
    """
    train, test = (
        with_format(in_memory(first_classes(source, config.classes)), channels, levels)
        for source in open_splits(config.data, config.test_data)
    )
    multi_label = multi_label and train.multi_labels is not None
    for source in (train, test):
        if (source.multi_labels if multi_label else source.labels) is None:
            raise InputError(
                f"{source.name}: has no labels, which this evaluation needs; put the images of "
                "each class into a sub-folder"
            )
        if len(source) == 0:
            raise InputError(
                f"{config.data}: no images are left for the test; give some with --test_data"
            )
    match_classes(train, test)
    return train, test


def any_splits(config: EvalConfig) -> tuple[Source, Source]:
    """Open images with or without labels; without a test split, the training images twice."""
    sources = open_split(config.data, "all")
    test = open_split(config.test_data, "all")[-1] if config.test_data else sources[-1]
    return first_classes(sources[0], config.classes), first_classes(test, config.classes)


def match_classes(train: Source, test: Source) -> None:
    """Renumber the classes of the test images, in place, to match those of the training images.

    Classes are matched by name. Names without a test image, such as most of VOC's twenty in a small
    part of it, are ignored.

    Raises:
        InputError: test images are of classes without a training image.
    """
    if test.labels is not None:
        present = torch.bincount(test.labels, minlength=len(test.classes)) > 0
    else:
        assert test.multi_labels is not None
        present = (test.multi_labels == 1).any(dim=0)
    number = {name: i for i, name in enumerate(train.classes)}
    names = [name for name, any_image in zip(test.classes, present, strict=True) if any_image]
    if unknown := [name for name in names if name not in number]:
        listed = ", ".join(unknown[:_MAX_NAMES]) + (", …" if len(unknown) > _MAX_NAMES else "")
        raise InputError(
            f"{test.name}: has test images of classes that {train.name} has no training image "
            f"of: {listed}"
        )
    numbers = torch.tensor([number.get(name, -1) for name in test.classes])
    if test.labels is not None:
        test.labels = numbers[test.labels]
    elif test.multi_labels is not None:
        absent = test.multi_labels.new_zeros(len(test), len(number))
        known = numbers >= 0
        test.multi_labels = absent.index_copy(1, numbers[known], test.multi_labels[:, known])
    test.classes = train.classes
