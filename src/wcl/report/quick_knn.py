"""Quick scores by nearest neighbors, of runs that are not evaluated yet and without training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.data import Source, first_classes, in_memory, limited, open_splits, with_format
from wcl.evaluation.features import features, pixel_batches
from wcl.evaluation.knn import default_k, few_label_accuracy, predict
from wcl.evaluation.references import (
    chance_level,
    pretrained_encoder,
    pretrained_run,
    untrained_encoder,
)
from wcl.evaluation.splits import match_classes
from wcl.evaluation.uncertainty import Figure, accuracy, interval, margin
from wcl.models.encoder import Encoder
from wcl.report.runs import Run
from wcl.report.scores import Scores, evaluated, other_data
from wcl.system.errors import InputError, RunError

_LABELS_PER_CLASS = (1, 3, 10)  # as in `wcl demo`
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


class LabeledFeatures(NamedTuple):
    """Features and labels of the readable images, in the order of `few_label_accuracy`."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def scores_of(
    runs: Sequence[Run],
    encoders: Sequence[Encoder | None],
    spec: str,
    num_workers: int,
) -> Scores:
    """Return the evaluations of runs, and quick scores of those without one on these data.

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
            scores.notes.append(f"No accuracy: {error}.")
        return scores
    for number, encoder in quick.items():
        _add_quick_scores(scores, number, runs[number].name, encoder, splits, num_workers)
    scores.rows.sort(key=lambda row: bool(row.other_data))
    _add_pixels(scores, first, splits, num_workers)
    return scores


def _add_quick_scores(
    scores: Scores, number: int, name: str, encoder: Encoder, splits: Splits, num_workers: int
) -> None:
    """Add quick scores of a run, or a note why there are none."""
    networks: dict[str, Encoder | None] = {"encoder": encoder}
    networks["untrained"] = untrained_encoder(encoder)
    try:
        networks["pretrained"] = pretrained_encoder(encoder)
    except InputError as error:
        scores.notes.append(f"{name}: the untouched encoder cannot be measured: {error}.")
    try:
        labeled = {
            key: _features(network, splits, num_workers)
            for key, network in networks.items()
            if network is not None
        }
    except (InputError, RunError) as error:
        scores.notes.append(f"{name}: nothing could be measured: {error}.")
        return
    labeled["pixels"] = _pixels(encoder, splits, num_workers)
    for row in _rows(labeled, chance_level(splits.test)):
        scores.add(number, row)
    if "pretrained" in labeled:
        scores.pretrained[number] = pretrained_run(encoder)
    some = "" if splits.is_all else f" on {len(splits.train):,} of the images"
    scores.notes.append(f"{name}: quick scores{some}; `wcl eval all` measures more.")


def _rows(labeled: dict[str, LabeledFeatures], chance: float) -> list[dict[str, Any]]:
    """Return rows as `wcl eval all` writes them, with raw pixels besides."""
    first = labeled["encoder"]
    counts = first.train_labels.unique(return_counts=True)[1]
    k = default_k(first.train_labels)
    rows = []
    for per_class in (*(n for n in _LABELS_PER_CLASS if n <= int(counts.min())), 0):
        figures = {
            key: few_label_accuracy(*own, per_class) if per_class else _knn(own, k)
            for key, own in labeled.items()
        }
        figure = figures.pop("encoder")
        row = {
            "protocol": "nearest" if per_class else "knn",
            "setting": f"{per_class} per class" if per_class else f"k = {k}",
            "measure": "top1",
            "n_train": per_class * len(counts) or len(first.train_labels),
            "n_test": len(first.test_labels),
            "encoder": figure.score,
            "interval": interval(figure),
            "chance": chance,
        }
        for key, other in figures.items():
            row |= {key: other.score, f"{key}_margin": margin(figure, other)}
        rows.append(row)
    return rows


def _knn(labeled: LabeledFeatures, k: int) -> Figure:
    bank, known, queries, labels = labeled
    predicted = predict(queries, bank, known, int(known.max()) + 1, k, _TEMPERATURE)
    return accuracy(predicted == labels)


def _features(encoder: Encoder, splits: Splits, num_workers: int) -> LabeledFeatures:
    train, test = (
        features(encoder, _for_encoder(source, encoder), num_workers) for source in splits[:2]
    )
    return LabeledFeatures(*train, *test)


def _add_pixels(scores: Scores, encoder: Encoder, splits: Splits, num_workers: int) -> None:
    """Add raw pixels to evaluations by k-NN on these very images."""
    sizes = len(splits.train), len(splits.test)
    labeled = None
    for row in scores.rows:
        is_evaluated = row.protocol == "knn" and row.pixels is None and not row.other_data
        if is_evaluated and (row.n_train, row.n_test) == sizes:
            labeled = labeled or _pixels(encoder, splits, num_workers)
            score = _knn(labeled, int(row.setting.removeprefix("k = "))).score
            for measured in row.measured.values():
                measured["pixels"] = score


def _pixels(encoder: Encoder, splits: Splits, num_workers: int) -> LabeledFeatures:
    """Return the pixels of the readable images, shrunk, as features."""
    side = min(_PIXEL_SIDE, encoder.description.image_size)
    found = []
    for split in splits[:2]:
        source = _for_encoder(split, encoder)
        assert source.labels is not None
        parts, rows = [], []
        for pixels, index in pixel_batches(encoder, source, num_workers):
            parts.append(F.adaptive_avg_pool2d(pixels.float(), side).flatten(1))
            rows.append(index)
        found += [torch.cat(parts), source.labels[torch.cat(rows)]]
    return LabeledFeatures(*found)


def _for_encoder(source: Source, encoder: Encoder) -> Source:
    return with_format(source, encoder.description.channels, encoder.description.levels)


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
