"""Low-shot classification: linear SVMs on the features of a few labeled images of each class.

Features are L2-normalized, and every class has its own SVM, trained on k examples per class in
several draws, and on all images. Where images have several labels (VOC07), the measure is the mean
average precision over the classes; where they have one, it is the accuracy of the highest score,
and the mean average precision is reported beside it.

Two ways of drawing k examples are published. `union` is PCL's: k positives of every class, and all
drawn images train all SVMs. `per-class` is that of FAIR's benchmark (Goyal et al., 2019) and VISSL:
k positives and, for the 20 classes of VOC, 19·k negatives for the SVM of each class alone.

The result is that of one cost, C = 1, chosen beforehand. VISSL trains with eleven, 0.01 to 1000,
and reports the best on the test images for each k; PCL uses 0.5. `costs` tries others, and the best
of them is reported beside the result as `best_on_test`.

The average precision is scikit-learn's, without interpolation. VISSL and PCL first raise every
precision to the highest at any larger recall, which gives slightly more; VOC2007's own tool samples
that raised curve at eleven points.

An image whose objects of a class are all 'difficult' (-1) is left out for that class at test. In
training it counts as one without the class, as in PCL and, on all images, in VISSL; `per-class`
draws it neither as a positive nor as a negative, like VISSL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from wcl.config import LowshotConfig
from wcl.config.bounds import at_least
from wcl.config.evaluations import COSTS
from wcl.data import Source
from wcl.evaluation.classification import setting_values
from wcl.evaluation.features import features_and_rows
from wcl.evaluation.few_labels import Labels, TrainingSet, draw, write_draws
from wcl.evaluation.result import Result
from wcl.evaluation.svm import mean_average_precision, svm_scores
from wcl.evaluation.uncertainty import Figure, accuracy
from wcl.models.encoder import Encoder
from wcl.ops.randomness import Floats
from wcl.system.errors import InputError
from wcl.system.paths import one_line
from wcl.system.progress import log, track
from wcl.system.run_folder import RunFolder

MULTI_LABEL = True
HAS_REFERENCES = True
_SHOTS = [1, 2, 4, 8, 16, 32, 64]


@dataclass(frozen=True)
class Images:
    """The readable images of a split."""

    features: Floats
    labels: Labels
    places: list[str]


def lowshot(encoder: Encoder, train: Source, test: Source, config: LowshotConfig) -> Result:
    """Train SVMs with few labels and with all, and test them."""
    shots, costs = _SHOTS, [config.cost]  # the cost of the result first
    if config.k:
        shots = sorted(set(setting_values("k", config.k, int, at_least(1))))
    if config.costs:
        costs = list(dict.fromkeys(costs + setting_values("costs", config.costs, float, COSTS)))
    measure: Literal["top1", "map"] = "top1" if train.multi_labels is None else "map"
    known, unseen = (_images(encoder, source, config.num_workers) for source in (train, test))
    numbers = _trained_classes(known.labels, unseen.labels, train.classes)
    classes = [train.classes[number] for number in numbers]
    labels = known.labels[:, numbers]
    shots = _available(shots, labels, classes, required=bool(config.k))
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
    sets.append(TrainingSet(None, 0, (labels == 1).astype(np.int8)))

    figures: dict[tuple[int | None, float], list[dict[str, Figure]]] = {}
    tasks = [(chosen, cost) for chosen in sets for cost in costs]
    for chosen, cost in track(tasks, "training SVMs"):
        scores = svm_scores(known.features, chosen.labels, unseen.features, cost)
        figure = {"map": mean_average_precision(scores, unseen.labels[:, numbers])}
        if measure == "top1":
            predicted = np.array(numbers)[scores.argmax(axis=1)]
            correct = unseen.labels[np.arange(len(predicted)), predicted]
            figure["top1"] = accuracy(torch.from_numpy(correct))
        figures.setdefault((chosen.k, cost), []).append(figure)

    rows = []
    for k in (*shots, None):
        counts = [len(chosen.rows) for chosen in sets if chosen.k == k]
        row = {"k": "all" if k is None else k, **_summary(figures[k, config.cost], measure)}
        row["images"] = round(float(np.mean(counts)))
        if len(costs) > 1:
            means = {cost: _summary(figures[k, cost], measure)["mean"] for cost in costs}
            row["best_cost"] = max(means, key=lambda cost: means[cost])
            row["best_on_test"] = means[row["best_cost"]]
        rows.append(row)
    of_all = {name: rows[-1][name] for name in ("map", "best_on_test") if name in rows[-1]}
    images = len(known.labels), len(unseen.labels)
    return Result(
        "lowshot",
        rows[-1]["mean"],
        *images,
        of_all | details,
        rows,
        measure,
        figures=[_over_draws(figures[k, config.cost], measure) for k in (*shots, None)],
    )


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


def _trained_classes(train: Labels, test: Labels, classes: Sequence[str]) -> list[int]:
    """Return the classes that have training images; report classes that cannot be measured."""
    trained, tested = ((labels == 1).any(axis=0) for labels in (train, test))
    if not (trained & tested).any():
        raise InputError("--data: no class has both a training image and a test image")
    for missing_in, images in ((tested & ~trained, "training"), (trained & ~tested, "test")):
        if missing := [classes[number] for number in np.flatnonzero(missing_in).tolist()]:
            log(f"left out of the mean, classes without a {images} image: {', '.join(missing)}")
    return [int(number) for number in np.flatnonzero(trained)]


def _available(
    shots: list[int], labels: Labels, classes: Sequence[str], required: bool
) -> list[int]:
    """Return the numbers of examples that every class has; fail or report if others are left."""
    counts = (labels == 1).sum(axis=0)
    count, name = int(counts.min()), one_line(str(classes[int(counts.argmin())]))
    too_many = [k for k in shots if k > count]
    if too_many and required:
        raise InputError(
            f"--k: {too_many[0]} examples per class cannot be drawn, {name} has {count}; "
            f"give at most {count}"
        )
    if too_many:
        log(f"k = {', '.join(map(str, too_many))} left out: {name} has {count} images")
    return [k for k in shots if k <= count]


def _over_draws(figures: list[dict[str, Figure]], measure: str) -> Figure:
    parts = [figure[measure] for figure in figures]
    contributions = torch.cat([part.contributions for part in parts])
    return Figure(float(np.mean([part.score for part in parts])), contributions)


def _summary(figures: list[dict[str, Figure]], measure: str) -> dict[str, Any]:
    """Return mean and standard deviation over the draws, and the mean of the other measure."""
    means = {name: _over_draws(figures, name).score for name in figures[0]}
    std = float(np.std([figure[measure].score for figure in figures]))
    return {"mean": means.pop(measure), "std": std, **means}
