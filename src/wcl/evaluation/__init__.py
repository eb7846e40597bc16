"""Evaluation of encoders: one module per protocol, whose main function has the same name.

A module that supports several labels per image sets `MULTI_LABEL`, one that needs none sets
`NEEDS_LABELS` to False, and one that is quick enough to measure other weights of the same network,
too, sets `HAS_REFERENCES`. Those are measured by the function `PROTOCOL_reference` of the module,
if it has one.
"""

import dataclasses
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from wcl.config import PROTOCOLS, EvalConfig
from wcl.config.bounds import check_bounds
from wcl.evaluation.overlap import overlap
from wcl.evaluation.own_data import with_data
from wcl.evaluation.preprocessing import with_preprocessing
from wcl.evaluation.references import (
    chance_level,
    pretrained_run,
    reference_figures,
    with_references,
)
from wcl.evaluation.result import Result, show
from wcl.evaluation.splits import any_splits, labeled_splits
from wcl.models.encoder import Encoder
from wcl.models.opening import open_encoder
from wcl.system.errors import InputError, did_you_mean
from wcl.system.machine import best_device, use_threads
from wcl.system.progress import log, without_repeats

__all__ = ["Result", "evaluate", "show"]


def evaluate(
    run: str | Path | Encoder,
    protocol: str = "knn",
    data: str | Path = "",
    config: EvalConfig | None = None,
    references: bool = True,
    **options: Any,
) -> Result:
    """Evaluate an encoder: the same as `wcl eval PROTOCOL RUN [--data SRC]`.

    Args:
        run: a run folder, an encoder file, `timm:NAME`, or an encoder; see `open_encoder`.
        protocol: "knn", "linear", "lowshot" or another protocol of `wcl eval`.
        data: labeled images, as for pretraining; by default those that the run was trained on.
        config: all options of the protocol, instead of `data` and `options`.
        references: whether to measure the untrained network, and the encoder that the run started
            from, beside it, where that is quick: by knn, lowshot, and linear in the mode fast.
        options: single options of the protocol, such as `k=20` or `mode="paper"`.

    Raises:
        InputError: the protocol or the encoder does not exist, or the data have no labels.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"{protocol}: no such protocol{did_you_mean(protocol, PROTOCOLS)}")
    module = import_module(f"wcl.evaluation.{protocol}")
    config = config or PROTOCOLS[protocol](data=str(data), **options)
    check_config(config)
    encoder = open_encoder(run, best_device(config.device))
    needs_labels = getattr(module, "NEEDS_LABELS", True)
    is_own, config = not config.data, with_data(config, encoder, needs_labels)
    encoder = with_preprocessing(encoder, config)
    described = encoder.description
    if needs_labels:
        multi_label = getattr(module, "MULTI_LABEL", False)
        train, test = labeled_splits(config, described.channels, described.levels, multi_label)
    else:
        train, test = any_splits(config)
    if is_own:
        log(f"on {config.data}, which the run was trained on")
    if needs_labels and (shared := overlap(train, test)):
        log(
            f"{len(shared)} of {len(test)} test images are also training images, such as "
            f"{shared[0]}: the results are inflated"
        )
    began = time.perf_counter()
    measure: Callable[..., Result] = getattr(module, protocol)
    with without_repeats():
        result = measure(encoder, train, test, config)
        result = dataclasses.replace(result, seconds=time.perf_counter() - began)
        if not result.figures:
            return result
        beside = {}
        is_quick = getattr(config, "mode", "fast") == "fast"
        if references and is_quick and getattr(module, "HAS_REFERENCES", False):
            of_reference = getattr(
                module, f"{protocol}_reference", lambda *given: measure(*given).figures
            )
            beside = reference_figures(
                encoder, of_reference, protocol, train, test, config, result.n_test
            )
    untouched = pretrained_run(encoder) if "pretrained" in beside else ""
    return with_references(result, chance_level(test), beside, untouched)


def check_config(config: EvalConfig) -> None:
    """Apply the number of threads, and raise InputError if a common setting is invalid."""
    use_threads(config.threads)
    check_bounds(config)
