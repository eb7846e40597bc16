"""How good an encoder is: one file per protocol."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from wcl.config import PROTOCOLS, EvalConfig
from wcl.config.validation import check_seed
from wcl.data import Source, first_classes, in_memory, open_splits, with_channels
from wcl.evaluation.overlap import overlap
from wcl.evaluation.result import Result, show
from wcl.models.encoder import Encoder, load
from wcl.system.errors import InputError, did_you_mean
from wcl.system.machine import best_device, check_workers, use_threads
from wcl.system.progress import say, without_repeats

__all__ = ["Result", "evaluate", "show"]

_MULTI_LABEL = ("lowshot",)  # the protocols that can do with several labels per image
_NAMED = 5  # classes that a complaint names


def evaluate(
    run: str | Path | Encoder,
    protocol: str = "knn",
    data: str | Path = "",
    config: EvalConfig | None = None,
    **options: Any,
) -> Result:
    """Evaluate an encoder: the same as `wcl eval PROTOCOL RUN --data SRC`.

    Args:
        run: a run's folder, an encoder's file, or an encoder.
        protocol: "knn", "linear", "lowshot" or another of `wcl eval`.
        data: labeled images, as for pretraining.
        config: all options of the protocol at once, instead of `data` and `options`.
        options: single options of the protocol, such as `k=20` or `mode="paper"`.

    Raises:
        InputError: no such protocol, no encoder, or data without labels.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"{protocol}: no such protocol{did_you_mean(protocol, PROTOCOLS)}")
    carry_out = getattr(import_module(f"wcl.evaluation.{protocol}"), protocol)
    config = config or PROTOCOLS[protocol](data=str(data), **options)
    if not config.data:
        raise InputError("--data: say where the labeled images are")
    use_threads(config.threads)
    check_workers(config.num_workers)
    check_seed(getattr(config, "seed", 0))  # k-NN has none
    encoder = run if isinstance(run, Encoder) else load(run, best_device(config.device))
    train, test = labeled_splits(protocol, config, encoder.description.channels)
    if shared := overlap(train, test):
        say(
            f"{len(shared)} of {len(test)} test images are training images too, such as "
            f"{shared[0]}: the figures flatter"
        )
    with without_repeats():
        result: Result = carry_out(encoder, train, test, config)
    return result


def labeled_splits(protocol: str, config: EvalConfig, channels: int) -> tuple[Source, Source]:
    """The training and the test images of an evaluation, their classes numbered alike.

    Raises:
        InputError: there are none, or they have not the labels that it needs.
    """
    train, test = (
        with_channels(in_memory(first_classes(source, config.classes)), channels)
        for source in open_splits(config.data, config.test_data)
    )
    several = train.multi_labels is not None and protocol in _MULTI_LABEL
    for source in (train, test):
        if (source.multi_labels if several else source.labels) is None:
            raise InputError(
                f"{source.name}: has no labels, which this evaluation needs; put each class's "
                "images into a sub-folder of its own"
            )
        if len(source) == 0:
            raise InputError(
                f"{config.data}: no images are left for the test; give some with --test_data"
            )
    _number_classes_alike(train, test)
    return train, test


def _number_classes_alike(train: Source, test: Source) -> None:
    """Give the test images' classes the numbers that the training images' have, name by name.

    A name that no test image bears, such as most of VOC's twenty in a small kit, is passed over.

    Raises:
        InputError: test images are of classes that the training images do not have.
    """
    if test.labels is not None:
        borne = torch.bincount(test.labels, minlength=len(test.classes)) > 0
    else:
        assert test.multi_labels is not None
        borne = (test.multi_labels == 1).any(dim=0)
    number = {name: i for i, name in enumerate(train.classes)}
    names = [name for name, any_image in zip(test.classes, borne, strict=True) if any_image]
    if unknown := [name for name in names if name not in number]:
        named = ", ".join(unknown[:_NAMED]) + (", …" if len(unknown) > _NAMED else "")
        raise InputError(
            f"{test.name}: has test images of classes that {train.name} has no training image "
            f"of: {named}"
        )
    numbers = torch.tensor([number.get(name, -1) for name in test.classes])
    if test.labels is not None:
        test.labels = numbers[test.labels]
    elif test.multi_labels is not None:
        absent = test.multi_labels.new_zeros(len(test), len(number))
        known = numbers >= 0
        test.multi_labels = absent.index_copy(1, numbers[known], test.multi_labels[:, known])
    test.classes = train.classes
