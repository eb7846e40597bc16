"""References to compare a figure with: chance, and other weights of the same network.

The references are the untrained network, which shows what the architecture and the pixels give by
themselves, and for a run that started from pretrained weights the untouched encoder.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save

from wcl import __version__
from wcl.config import EvalConfig, ModelConfig
from wcl.config.run_config import read_config
from wcl.data import Source
from wcl.evaluation.features import features_key
from wcl.evaluation.result import REFERENCES, Result
from wcl.evaluation.run_files import write_if_possible
from wcl.evaluation.uncertainty import Figure, interval, margin
from wcl.models.encoder import Encoder
from wcl.models.opening import run_argument
from wcl.models.pretrained import load_weights
from wcl.models.weights_file import read_weights
from wcl.system.errors import InputError, RunError
from wcl.system.progress import log
from wcl.system.run_folder import RunFolder

ReferenceFunction = Callable[[Encoder, Source, Source, Any], list[Figure]]
_WITHOUT_EFFECT = (
    *("data", "test_data", "classes"),  # the images have a key of their own
    *("device", "threads", "num_workers", "per_class", "confusion"),
)


def chance_level(test: Source) -> float:
    """Return the score of guessing.

    For an accuracy it is the share of the most frequent class, which is what the best constant
    answer reaches; for a mean average precision, the mean share of the images with a class.
    """
    if test.labels is not None:
        return float(torch.bincount(test.labels).max()) / len(test.labels)
    assert test.multi_labels is not None
    positives = (test.multi_labels == 1).sum(dim=0)
    used = (test.multi_labels != -1).sum(dim=0)
    return float((positives / used.clamp(min=1))[positives > 0].mean())


def untrained_encoder(encoder: Encoder, seed: int = 0) -> Encoder:
    """Return the same network with random weights, which depend on the seed alone."""
    description = dataclasses.replace(
        encoder.description, method="none", epoch=0, weights="", weights_sha256=""
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        untrained = Encoder(description).to(encoder.device).eval()
    untrained.home = encoder.home  # to cache its features
    return untrained


def pretrained_encoder(encoder: Encoder) -> Encoder | None:
    """Return the encoder that a run started from, untouched; None if its weights were random.

    Raises:
        InputError: the weights are no longer where they were, or have changed.
    """
    model = _starting_model(encoder)
    if model is None:
        return None
    described = encoder.description
    description = dataclasses.replace(described, heads=(), method="none", epoch=0)
    untouched = Encoder(description)
    load_weights(untouched.backbone, model, described.channels, described.image_size)
    untouched.home = encoder.home
    return untouched.to(encoder.device).eval()


def pretrained_run(encoder: Encoder) -> str:
    """Return how commands name the untouched encoder that a run started from; empty if none."""
    model = _starting_model(encoder)
    return "" if model is None else run_argument(model, encoder.description.image_size)


def _starting_model(encoder: Encoder) -> ModelConfig | None:
    """Return the network with the weights that a run started from.

    Weights that did not fit in all parts make no encoder of their own.
    """
    file = RunFolder(encoder.home).config if encoder.home else None
    model = read_config(file).get("model") if file and file.is_file() else None
    if not isinstance(model, dict) or not model.get("weights") or model.get("weights_partial"):
        return None
    weights, sha256 = str(model["weights"]), encoder.description.weights_sha256
    return dataclasses.replace(encoder.description.model, weights=weights, weights_sha256=sha256)


def reference_figures(
    encoder: Encoder,
    measure: ReferenceFunction,
    protocol: str,
    train: Source,
    test: Source,
    config: EvalConfig,
    n_test: int,
) -> dict[str, list[Figure]]:
    """Measure the references of an encoder by a protocol, or read what was measured before.

    Those that cannot be measured are reported and left out.

    Args:
        encoder: the encoder of the result.
        measure: measures the figures of a reference by the protocol.
        protocol: name of the protocol.
        train, test, config: as for the result.
        n_test: number of test images of the result: those that could be read.
    """
    changes: dict[str, Any] = {"per_class": False, "confusion": ""}
    quiet = {name: value for name, value in changes.items() if hasattr(config, name)}
    config = dataclasses.replace(config, **quiet)
    found = {}
    for name, build in zip(REFERENCES, (untrained_encoder, pretrained_encoder), strict=True):
        try:
            reference = build(encoder)
            if reference is not None:
                found[name] = _cached(reference, measure, protocol, train, test, config, n_test)
        except (InputError, RunError) as error:
            log(f"the {name} network cannot be measured: {error}")
    return found


def _cached(
    encoder: Encoder,
    measure: ReferenceFunction,
    protocol: str,
    train: Source,
    test: Source,
    config: EvalConfig,
    n_test: int,
) -> list[Figure]:
    """Return the figures of a protocol from the folder of the encoder's run, or measure them."""
    if encoder.home is None:
        return measure(encoder, train, test, config)
    settings = dataclasses.asdict(config)
    settings = {name: value for name, value in settings.items() if name not in _WITHOUT_EFFECT}
    images = [features_key(encoder, source) for source in (train, test)]
    key = repr((__version__, protocol, sorted(settings.items()), images, n_test))
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"
    path = RunFolder(encoder.home).references / name
    with suppress(OSError, SafetensorError, KeyError):  # not measured yet, or damaged
        cached = read_weights(path)
        known = cached["scores"].tolist()
        return [Figure(score, cached[f"{number}"]) for number, score in enumerate(known)]
    figures = measure(encoder, train, test, config)
    tensors = {f"{number}": figure.contributions for number, figure in enumerate(figures)}
    scores = torch.tensor([figure.score for figure in figures], dtype=torch.float64)
    content = save({"scores": scores, **tensors})
    write_if_possible(path, content, "the reference is not cached for the next evaluation")
    return figures


def with_references(
    result: Result, chance: float, references: dict[str, list[Figure]], pretrained: str
) -> Result:
    """Return a result with the interval of each figure, chance, and the references beside it.

    Args:
        result: the result of the encoder.
        chance: score of guessing.
        references: the figures of each reference, as many as the result has.
        pretrained: how commands name the untouched encoder; empty if there is none.
    """
    beside = [
        dict(_beside(figure, number, references)) for number, figure in enumerate(result.figures)
    ]
    rows = result.rows
    if rows and "mean" in rows[0]:  # of several settings
        rows = [{**_first(row, 2), **own, **row} for row, own in zip(rows, beside, strict=True)]
    last = {**beside[-1], **({"pretrained_run": pretrained} if pretrained else {})}
    return dataclasses.replace(result, beside={**last, "chance": chance}, rows=rows)


def _first(row: dict[str, Any], count: int) -> dict[str, Any]:
    return dict(list(row.items())[:count])


def _beside(
    figure: Figure, number: int, references: dict[str, list[Figure]]
) -> Iterator[tuple[str, Any]]:
    """Yield what is reported beside a figure."""
    yield "interval", list(interval(figure))
    for name, figures in references.items():
        other = figures[number]
        yield name, other.score
        yield f"{name}_margin", margin(figure, other)
