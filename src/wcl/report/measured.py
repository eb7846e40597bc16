"""What a report measures by itself: a quick k-NN of runs, untrained networks and raw pixels."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import KnnConfig
from wcl.data import Source, absolute, first_classes, in_memory, limited, open_splits, with_channels
from wcl.evaluation.features import BATCH, pixel_batches
from wcl.evaluation.knn import knn, predict
from wcl.evaluation.splits import match_classes
from wcl.models.encoder import Description, Encoder
from wcl.report.runs import Run, short
from wcl.report.scores import Scores, evaluated
from wcl.system.errors import InputError, RunError
from wcl.system.progress import track

_QUICK_TRAIN, _QUICK_TEST = 2000, 500
# Images that are all measured with: by passing them through networks, or by their pixels alone.
_MOST_QUICK, _MOST_PIXELS = 3000, 12_000
_PIXEL_SIDE = 32
_TAU = 0.1  # of k-NN, as `wcl eval` has it


@dataclass(frozen=True)
class Splits:
    """Labeled images to measure with."""

    train: Source
    test: Source
    whole: bool
    """Whether these are all of them."""


def measured(
    runs: Sequence[Run],
    encoders: Sequence[Encoder | None],
    spec: str,
    classes: int,
    num_workers: int,
) -> Scores:
    """What `wcl eval all` found, or where it was not run a quick k-NN if there are labels.

    Args:
        runs: the runs.
        encoders: of each, None if it has none yet.
        spec: the data.
        classes: use only the first so many; 0 for all.
        workers: processes that decode.
    """
    elsewhere = [_elsewhere(run, spec, classes) for run in runs]
    found = evaluated(runs)
    quick = [
        number
        for number, run in enumerate(runs)
        if encoders[number] is not None and (run.evaluation is None or elsewhere[number])
    ]
    trained = [encoder for encoder in encoders if encoder is not None]
    if not trained:
        return found
    try:
        splits = _splits(spec, classes, _MOST_QUICK if quick else _MOST_PIXELS)
    except InputError as error:
        if not found.rows:
            found.notes.append(f"Nothing can be measured: {error}.")
        return found
    baselines = _Baselines(splits, num_workers)
    for number in quick:
        encoder = encoders[number]
        assert encoder is not None
        try:
            _add_quick(found, encoder, number, [run.name for run in runs], baselines)
        except (InputError, RunError) as error:
            found.notes.append(f"{runs[number].name}: k-NN could not be measured: {error}.")
    found.rows.sort(key=lambda row: bool(row.elsewhere))
    with suppress(RunError):  # of images that are gone, the report says so where it shows them
        _add_pixels(found, trained[0], baselines)
    return found


def _elsewhere(run: Run, spec: str, classes: int) -> bool:
    """Whether a run was evaluated on other data; each row of its evaluation then says on which."""
    if run.evaluation is None:
        return False
    data = str(run.evaluation.get("data", "")) or spec
    test_data = str(run.evaluation.get("test_data", ""))
    only = run.evaluation.get("classes", classes)
    if absolute(data) == absolute(spec) and not test_data and only == classes:
        return False
    where = short(data)
    if test_data:
        where += f", tested on {short(test_data)}"
    if only != classes:
        where += f", {f'{only} classes of it' if only else 'all classes'}"
    rows = [{**row, "elsewhere": where} for row in run.evaluation["rows"]]
    run.evaluation = {**run.evaluation, "rows": rows}
    return True


class _Baseline(NamedTuple):
    """The training and the test images as rows of numbers."""

    untrained: list[Tensor]
    """Features of a network that has learned nothing."""
    pixels: list[Tensor]


class _Baselines:
    """What pixels and untrained networks make of the images; each image is read once for both."""

    def __init__(self, splits: Splits, num_workers: int) -> None:
        self.splits, self.num_workers = splits, num_workers
        self._labels: list[Tensor] = []
        self._known: dict[str, _Baseline] = {}

    def of(self, encoder: Encoder) -> _Baseline:
        """For images as this encoder gets them; runs of the same network share it."""
        own = encoder.description
        blank = Description(own.model, (), own.channels, own.image_size, own.mean, own.std)
        key = repr(blank)
        if key not in self._known:
            self._known[key] = self._compute(blank, encoder.device)
        return self._known[key]

    def _compute(self, blank: Description, device: torch.device) -> _Baseline:
        torch.manual_seed(0)  # as `wcl eval all` has it
        network = Encoder(blank).to(device).eval()
        found, self._labels = _Baseline([], []), []
        for source in (self.splits.train, self.splits.test):
            source = with_channels(source, blank.channels)
            assert source.labels is not None
            features, small, rows = [], [], []
            total = -(-len(source) // BATCH)
            batches = pixel_batches(network, source, self.num_workers)
            for pixels, index in track(batches, "measuring the untrained network", total):
                features.append(network.embed(pixels))
                side = min(_PIXEL_SIDE, blank.image_size)
                small.append(F.adaptive_avg_pool2d(pixels.float(), side).flatten(1))
                rows.append(index)
            if not rows:
                raise RunError(f"none of the images of {short(source.name)} can be read")
            found.untrained.append(torch.cat(features))
            found.pixels.append(torch.cat(small))
            self._labels.append(source.labels[torch.cat(rows)])
        return found

    def accuracy(self, values: list[Tensor], k: int) -> float:
        """Of k-NN, from the training images to the test images."""
        (bank, queries), (known, labels) = values, self._labels
        k = min(k, len(bank))
        predicted = predict(queries, bank, known, len(self.splits.train.classes), k, _TAU)
        return float((predicted == labels).float().mean())


def _add_quick(
    found: Scores, encoder: Encoder, number: int, names: Sequence[str], baselines: _Baselines
) -> None:
    splits, channels = baselines.splits, encoder.description.channels
    train, test = (with_channels(source, channels) for source in (splits.train, splits.test))
    ours = knn(encoder, train, test, KnnConfig(temperature=_TAU, num_workers=baselines.num_workers))
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
    untrained = baselines.accuracy(baselines.of(encoder).untrained, int(ours.details["k"]))
    row.runs[number], row.untrained[number] = ours.score, untrained
    some = "" if splits.whole else f" on {ours.n_train:,} of the images"
    found.notes.append(
        f"{names[number]}: a quick look by k-NN alone{some}; `wcl eval all` measures more."
    )


def _add_pixels(found: Scores, encoder: Encoder, baselines: _Baselines) -> None:
    """For the rows of k-NN that are of these very images."""
    splits = baselines.splits
    for row in found.rows:
        same = (row.n_train, row.n_test) == (len(splits.train), len(splits.test))
        voters = re.fullmatch(r"k = ([1-9]\d{0,8})", row.setting)
        if row.protocol == "knn" and voters and same and not row.elsewhere:
            row.pixels = baselines.accuracy(baselines.of(encoder).pixels, int(voters[1]))


def _splits(spec: str, classes: int, most: int) -> Splits:
    """Labeled training and test images: all, or if they are more than `most`, some of them.

    Raises:
        InputError: there are none.
    """
    train, test = open_splits(spec)
    if train.labels is None or test.labels is None:
        raise InputError("the images have no labels")
    train, test = (first_classes(source, classes) for source in (train, test))
    if not len(test):
        raise InputError("no images are left for the test")
    match_classes(train, test)
    some = limited(train, _QUICK_TRAIN, 0), limited(test, _QUICK_TEST, 0)
    whole = len(train) + len(test) <= most
    chosen = (train, test) if whole else some
    return Splits(in_memory(chosen[0]), in_memory(chosen[1]), whole)
