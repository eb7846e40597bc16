"""What a report measures by itself: a quick k-NN of runs, untrained networks and raw pixels."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import KnnConfig
from wcl.data import Source, absolute, first_classes, in_memory, limited, open_splits, with_channels
from wcl.encoder import Encoder
from wcl.errors import InputError, RunError
from wcl.evaluation.features import pixel_batches
from wcl.evaluation.knn import knn, predict
from wcl.report.runs import Run, short
from wcl.report.scores import Scores, evaluated

_QUICK_TRAIN, _QUICK_TEST = 4000, 1000
_MOST = 12_000  # images that are all measured with
_PIXEL_SIDE = 32
_TAU = 0.1  # of k-NN, as `wcl eval` has it


@dataclass(frozen=True)
class Splits:
    """Labelled images to measure with."""

    train: Source
    test: Source
    whole: bool
    """Whether these are all of them."""


def measured(
    runs: Sequence[Run], encoders: Sequence[Encoder | None], spec: str, classes: int
) -> Scores:
    """What `wcl eval all` found, or where it was not run a quick k-NN if there are labels.

    Args:
        runs: the runs.
        encoders: of each, None if it has none yet.
        spec: the data.
        classes: use only the first so many; 0 for all.
    """
    found = evaluated(runs)
    for run in runs:
        data = str((run.evaluation or {}).get("data", "")) or spec
        if absolute(data) != absolute(spec):
            found.notes.append(f"{run.name} was evaluated on {short(data)}.")
    trained = [encoder for encoder in encoders if encoder is not None]
    if not trained:
        return found
    try:
        splits = _splits(spec, classes)
    except InputError as error:
        if not found.rows:
            found.notes.append(f"Nothing can be measured: {error}.")
        return found
    for number, encoder in enumerate(encoders):
        if encoder is not None and runs[number].evaluation is None:
            _add_quick(found, encoder, number, [run.name for run in runs], splits)
    _add_pixels(found, trained[0], splits)
    return found


def _add_quick(
    found: Scores, encoder: Encoder, number: int, names: Sequence[str], splits: Splits
) -> None:
    channels = encoder.description.channels
    train, test = (with_channels(source, channels) for source in (splits.train, splits.test))
    torch.manual_seed(0)  # as `wcl eval all` has it
    description = dataclasses.replace(encoder.description, method="none", epoch=0)
    untrained = Encoder(description).to(encoder.device).eval()
    try:
        ours, theirs = (knn(one, train, test, KnnConfig(tau=_TAU)) for one in (encoder, untrained))
    except (InputError, RunError) as error:
        found.notes.append(f"k-NN could not be measured: {error}.")
        return
    row = found.row(
        {
            "protocol": "knn",
            "measure": "top1",
            "setting": f"k = {ours.details['k']}",
            "n_train": ours.n_train,
            "n_test": ours.n_test,
        },
        len(names),
    )
    row.runs[number], row.untrained[number] = ours.score, theirs.score
    some = "" if splits.whole else f" on {ours.n_train:,} of the images"
    found.notes.append(
        f"{names[number]}: a quick look by k-NN alone{some}; `wcl eval all` measures more."
    )


def _add_pixels(found: Scores, encoder: Encoder, splits: Splits) -> None:
    """What k-NN on raw pixels reaches, for the rows of k-NN that are of these very images."""
    for row in found.rows:
        same = (row.n_train, row.n_test) == (len(splits.train), len(splits.test))
        if row.protocol != "knn" or not same:
            continue
        (bank, bank_labels), (queries, labels) = (
            _pixels(encoder, with_channels(source, encoder.description.channels))
            for source in (splits.train, splits.test)
        )
        k = min(int(row.setting.rpartition(" ")[2]), len(bank))
        predicted = predict(queries, bank, bank_labels, len(splits.train.classes), k, _TAU)
        row.pixels = float((predicted == labels).float().mean())


def _pixels(encoder: Encoder, source: Source) -> tuple[Tensor, Tensor]:
    """Images as the encoder gets them, made small, as rows; and their labels."""
    assert source.labels is not None
    side = min(_PIXEL_SIDE, encoder.description.size)
    parts, rows = [], []
    for pixels, index in pixel_batches(encoder, source):
        parts.append(F.adaptive_avg_pool2d(pixels.float(), side).flatten(1))
        rows.append(index)
    return torch.cat(parts), source.labels[torch.cat(rows)]


def _splits(spec: str, classes: int) -> Splits:
    """Labelled training and test images, at most so many that it takes seconds.

    Raises:
        InputError: there are none.
    """
    train, test = open_splits(spec)
    if train.labels is None or test.labels is None:
        raise InputError("the images have no labels")
    train, test = (first_classes(source, classes) for source in (train, test))
    number = {name: i for i, name in enumerate(train.classes)}
    if not len(test) or not {*test.classes} <= number.keys():
        raise InputError("the test images are of other classes")
    assert test.labels is not None
    labels = torch.tensor([number[name] for name in test.classes])[test.labels]
    test.labels, test.classes = labels, train.classes
    some = limited(train, _QUICK_TRAIN, 0), limited(test, _QUICK_TEST, 0)
    whole = len(train) + len(test) <= _MOST
    chosen = (train, test) if whole else some
    return Splits(in_memory(chosen[0]), in_memory(chosen[1]), whole)
