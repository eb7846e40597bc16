"""Low-shot classification: linear SVMs on the features of a few labeled images of each class.

Features are L2-normalized, and every class has an SVM of its own, trained on k examples per class,
in several draws, and on all images. Where images have several labels (VOC07) the measure is the
mean average precision over the classes; where they have one, the accuracy of the highest score,
with the mean average precision beside it.

Two ways of drawing k examples are published. `union` is PCL's: k positives of every class, and all
drawn images train all SVMs. `per-class` is that of FAIR's benchmark (Goyal et al., 2019) and VISSL:
k positives and, for the 20 classes of VOC, 19·k negatives for the SVM of each class alone.

The result is that of one cost, C = 1, chosen beforehand. VISSL trains with eleven, 0.01 to 1000,
and reports for each k the one that is best on the test images; PCL has 0.5. `costs` tries others,
and the best of them stands beside the result as `best_on_test`.

The average precision is scikit-learn's, without interpolation. VISSL and PCL first raise every
precision to the highest at any larger recall, which gives slightly more; VOC2007's own tool reads
that raised curve at eleven points.

'Difficult' objects (-1) are left out for their class, in training as in the test, as in VISSL and
VOC's own tools. PCL counts them as absent.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from wcl.config import LowshotConfig
from wcl.data import Source
from wcl.evaluation.draws import TrainingSet, draw, write_draws
from wcl.evaluation.features import features_and_rows
from wcl.evaluation.numbers import numbers
from wcl.evaluation.result import Result
from wcl.evaluation.svm import Labels, mean_average_precision, svm_scores
from wcl.models.encoder import Encoder
from wcl.ops.randomness import Floats
from wcl.system.errors import InputError
from wcl.system.paths import one_line
from wcl.system.progress import say, track
from wcl.system.run_folder import RunFolder

_SHOTS = [1, 2, 4, 8, 16, 32, 64]
_MOST_COST = 1e6  # from about there on an SVM takes hours and cannot be interrupted


@dataclass(frozen=True)
class Images:
    """The images of a split that can be read."""

    features: Floats
    labels: Labels
    places: list[str]


def lowshot(encoder: Encoder, train: Source, test: Source, config: LowshotConfig) -> Result:
    """Train SVMs with few labels and with all, and test them."""
    began = time.perf_counter()
    shots, costs = _checked(config)
    measure: Literal["top1", "map"] = "top1" if train.multi_labels is None else "map"
    known, asked = (_images(encoder, source, config.num_workers) for source in (train, test))
    taught = _taught(known.labels, asked.labels, train.classes)
    classes = [train.classes[number] for number in taught]
    labels = known.labels[:, taught]
    shots = _possible(shots, labels, classes, asked_for=bool(config.k))
    sets = [
        draw(labels, classes, k, run, config.seed, config.scheme)
        for k in shots
        for run in range(config.draws)
    ]
    details: dict[str, Any] = {
        "classes": len(classes),
        "scheme": config.scheme,
        "cost": config.cost,
        "draws": config.draws,
    }
    if encoder.home is not None:
        folder = RunFolder(encoder.home).lowshot
        written = write_draws(folder, sets, classes, known.places, config.scheme, config.seed)
        details |= {} if written is None else {"drawn": str(written)}
    sets.append(TrainingSet(None, 0, labels))

    found: dict[tuple[int | None, float], list[dict[str, float]]] = {}
    tasks = [(chosen, cost) for chosen in sets for cost in costs]
    for chosen, cost in track(tasks, "training SVMs"):
        scores = svm_scores(known.features, chosen.labels, asked.features, cost)
        figures = {"map": mean_average_precision(scores, asked.labels[:, taught])}
        if measure == "top1":
            predicted = np.array(taught)[scores.argmax(axis=1)]
            figures["top1"] = float(asked.labels[np.arange(len(predicted)), predicted].mean())
        found.setdefault((chosen.k, cost), []).append(figures)

    rows = []
    for k in (*shots, None):
        counts = [len(chosen.rows) for chosen in sets if chosen.k == k]
        row = {"k": "all" if k is None else k, **_spread(found[k, config.cost], measure)}
        row["images"] = round(float(np.mean(counts)))
        if len(costs) > 1:
            means = {cost: _spread(found[k, cost], measure)["mean"] for cost in costs}
            row["best_cost"] = max(means, key=lambda cost: means[cost])
            row["best_on_test"] = means[row["best_cost"]]
        rows.append(row)
    beside = {name: rows[-1][name] for name in ("map", "best_on_test") if name in rows[-1]}
    return Result(
        "lowshot",
        rows[-1]["mean"],
        len(known.labels),
        len(asked.labels),
        time.perf_counter() - began,
        beside | details,
        rows,
        measure,
    )


def _checked(config: LowshotConfig) -> tuple[list[int], list[float]]:
    """Examples per class, and costs with that of the result first."""
    if config.draws < 1:
        raise InputError(f"--draws: must be at least 1, not {config.draws}")
    if config.scheme not in ("union", "per-class"):
        raise InputError(f"--scheme: {config.scheme} is not one of union, per-class")
    shots = numbers("k", config.k, int) or _SHOTS
    if min(shots) < 1:
        raise InputError(f"--k: must be at least 1, not {min(shots)}")
    costs = numbers("costs", config.costs, float)
    for name, cost in (("cost", config.cost), *(("costs", cost) for cost in costs)):
        if not 0 < cost <= _MOST_COST:
            raise InputError(f"--{name}: must be above 0 and at most {_MOST_COST:g}, not {cost}")
    return sorted(set(shots)), list(dict.fromkeys([config.cost, *costs]))


def _images(encoder: Encoder, source: Source, num_workers: int) -> Images:
    values, rows = features_and_rows(encoder, source, num_workers)
    if source.multi_labels is not None:
        labels = source.multi_labels[rows]
    else:
        assert source.labels is not None
        labels = F.one_hot(source.labels[rows], len(source.classes))
    places = [source.where(row) for row in rows.tolist()]
    unit = F.normalize(values.double(), dim=1)
    return Images(unit.numpy(), labels.to(torch.int8).numpy(), places)


def _taught(train: Labels, test: Labels, classes: Sequence[str]) -> list[int]:
    """The classes that there are training images of; says which of the others count for nothing."""
    taught, tested = ((labels == 1).any(axis=0) for labels in (train, test))
    if not (taught & tested).any():
        raise InputError("--data: no class has both a training image and a test image")
    for missing_in, images in ((tested & ~taught, "training"), (taught & ~tested, "test")):
        if missing := [classes[number] for number in np.flatnonzero(missing_in).tolist()]:
            say(f"not in the mean over classes, for want of a {images} image: {', '.join(missing)}")
    return [int(number) for number in np.flatnonzero(taught)]


def _possible(
    shots: list[int], labels: Labels, classes: Sequence[str], asked_for: bool
) -> list[int]:
    """The numbers of examples that every class has; others are refused if they were asked for."""
    counts = (labels == 1).sum(axis=0)
    count, name = int(counts.min()), classes[int(counts.argmin())]
    too_many = [k for k in shots if k > count]
    if too_many and asked_for:
        raise InputError(
            f"--k: {too_many[0]} examples per class cannot be drawn, {name} has {count}; "
            f"give at most {count}"
        )
    if too_many:
        left_out = ", ".join(map(str, too_many))
        say(f"k = {left_out} left out: {one_line(str(name))} has {count} images")
    return [k for k in shots if k <= count]


def _spread(figures: list[dict[str, float]], measure: str) -> dict[str, Any]:
    """Mean and standard deviation over the draws, and the other measure's mean."""
    values = [draw[measure] for draw in figures]
    others = {name: [draw[name] for draw in figures] for name in figures[0] if name != measure}
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        **{name: float(np.mean(other)) for name, other in others.items()},
    }
