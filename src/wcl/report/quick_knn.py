"""Quick k-NN scores of runs that are not evaluated yet, and of baselines without training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import KnnConfig
from wcl.data import Source, first_classes, in_memory, limited, open_splits, with_channels
from wcl.evaluation.evaluate_all import untrained_encoder
from wcl.evaluation.features import pixel_batches
from wcl.evaluation.knn import knn, predict
from wcl.evaluation.splits import match_classes
from wcl.models.encoder import Encoder
from wcl.report.runs import Run
from wcl.report.scores import Scores, evaluated, other_data
from wcl.system.errors import InputError, RunError

_TRAIN, _TEST = 2000, 500
# Up to this many images all are used: for networks, and for pixels alone.
_ALL_FOR_NETWORKS, _ALL_FOR_PIXELS = 3000, 12_000
_PIXEL_SIDE = 32
_TEMPERATURE = 0.1  # the default of `wcl eval knn`


class Splits(NamedTuple):
    """Labeled images to measure with."""

    train: Source
    test: Source
    is_all: bool
    """Whether these are all images of the data."""


def scores_of(
    runs: Sequence[Run],
    encoders: Sequence[Encoder | None],
    spec: str,
    num_workers: int,
) -> Scores:
    """Return the evaluations of runs, and a quick k-NN for those without one on these data.

    Args:
        runs: the runs.
        encoders: of each run, None if it has none yet.
        spec: the data.
        num_workers: processes that decode images.
    """
    classes = runs[0].config.classes
    elsewhere = [other_data(run, spec, classes) for run in runs]
    scores = evaluated(runs, elsewhere)
    quick = {
        number: encoder
        for number, encoder in enumerate(encoders)
        if encoder is not None and (runs[number].evaluation is None or elsewhere[number])
    }
    first = next((encoder for encoder in encoders if encoder is not None), None)
    if first is None:
        return scores
    try:
        splits = _open_splits(spec, classes, _ALL_FOR_NETWORKS if quick else _ALL_FOR_PIXELS)
    except InputError as error:
        if not scores.rows:
            scores.notes.append(f"Nothing can be measured: {error}.")
        return scores
    for number, encoder in quick.items():
        try:
            measured = _quick_knn(encoder, splits, num_workers)
        except (InputError, RunError) as error:
            scores.notes.append(f"{runs[number].name}: k-NN could not be measured: {error}.")
            continue
        scores.add(number, measured)
        some = "" if splits.is_all else f" on {measured['n_train']:,} of the images"
        scores.notes.append(
            f"{runs[number].name}: a quick k-NN{some}; `wcl eval all` measures more."
        )
    scores.rows.sort(key=lambda row: bool(row.other_data))
    _add_pixels(scores, first, splits, num_workers)
    return scores


def _quick_knn(encoder: Encoder, splits: Splits, num_workers: int) -> dict[str, Any]:
    """Return a row as `wcl eval all` writes it."""
    channels = encoder.description.channels
    train, test = with_channels(splits.train, channels), with_channels(splits.test, channels)
    config = KnnConfig(temperature=_TEMPERATURE, num_workers=num_workers)
    result = knn(encoder, train, test, config)
    return {
        "protocol": "knn",
        "setting": f"k = {result.details['k']}",
        "measure": "top1",
        "n_train": result.n_train,
        "n_test": result.n_test,
        "encoder": result.score,
        "untrained": knn(untrained_encoder(encoder), train, test, config).score,
    }


def _add_pixels(scores: Scores, encoder: Encoder, splits: Splits, num_workers: int) -> None:
    """Add raw pixels to the rows of k-NN on these very images."""
    sizes = len(splits.train), len(splits.test)
    pixels: list[tuple[Tensor, Tensor]] = []
    for row in scores.rows:
        if row.protocol != "knn" or (row.n_train, row.n_test) != sizes or row.other_data:
            continue
        pixels = pixels or [_pixels(encoder, split, num_workers) for split in splits[:2]]
        (bank, known), (queries, labels) = pixels
        k = int(row.setting.removeprefix("k = "))
        predicted = predict(queries, bank, known, len(splits.train.classes), k, _TEMPERATURE)
        row.pixels = float((predicted == labels).float().mean())


def _pixels(encoder: Encoder, source: Source, num_workers: int) -> tuple[Tensor, Tensor]:
    """Return the pixels of the readable images, shrunk, as rows, and their labels."""
    source = with_channels(source, encoder.description.channels)
    assert source.labels is not None
    side = min(_PIXEL_SIDE, encoder.description.image_size)
    parts, rows = [], []
    for pixels, index in pixel_batches(encoder, source, num_workers):
        parts.append(F.adaptive_avg_pool2d(pixels.float(), side).flatten(1))
        rows.append(index)
    return torch.cat(parts), source.labels[torch.cat(rows)]


def _open_splits(spec: str, classes: int, all_up_to: int) -> Splits:
    """Return labeled training and test images, some of them if they are more than `all_up_to`.

    Raises:
        InputError: there are none.
    """
    train, test = (first_classes(source, classes) for source in open_splits(spec))
    if train.labels is None or test.labels is None:
        raise InputError("the images have no labels")
    if not len(test):
        raise InputError("there are no test images")
    match_classes(train, test)
    is_all = len(train) + len(test) <= all_up_to
    if not is_all:
        train, test = limited(train, _TRAIN, 0), limited(test, _TEST, 0)
    return Splits(in_memory(train), in_memory(test), is_all)
