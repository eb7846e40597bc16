"""How good an encoder is: one file per protocol."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from wcl.config import PROTOCOLS, EvalConfig
from wcl.data import first_classes, in_memory, open_splits, with_channels
from wcl.encoder import Encoder, load
from wcl.errors import InputError, did_you_mean
from wcl.evaluation.overlap import overlap
from wcl.evaluation.result import Result, show
from wcl.machine import best_device
from wcl.progress import console

__all__ = ["Result", "evaluate", "show"]

_MULTI_LABEL = ("lowshot",)  # the protocols that can do with several labels per image


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
        data: labelled images, as for pretraining.
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
        raise InputError("--data: say where the labelled images are")
    encoder = run if isinstance(run, Encoder) else load(run, best_device(config.device))
    channels = encoder.description.channels
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
    number = {name: i for i, name in enumerate(train.classes)}
    if unknown := [name for name in test.classes if name not in number]:
        raise InputError(
            f"{config.data}: no training image is of the test images' class {unknown[0]}"
        )
    numbers = torch.tensor([number[name] for name in test.classes])
    test.classes = train.classes
    if test.labels is not None:
        test.labels = numbers[test.labels]
    elif test.multi_labels is not None:
        absent = test.multi_labels.new_zeros(len(test), len(number))
        test.multi_labels = absent.index_copy(1, numbers, test.multi_labels)
    if shared := overlap(train, test):
        console().print(
            f"{len(shared)} of {len(test)} test images are training images too, such as "
            f"{shared[0]}: the figures flatter",
            markup=False,
            soft_wrap=True,
        )
    result: Result = carry_out(encoder, train, test, config)
    return result
