"""The training curves of runs, for the script of the pages."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from wcl.report.runs import Run
from wcl.training.metrics_file import is_number

_MAX_POINTS = 300
_ENOUGH_EPOCHS = 5  # to draw the means of epochs instead of single steps
_ENOUGH_STEPS = 3  # to draw a running mean


class Metric(NamedTuple):
    """A metric of training, how it is titled and how to read it."""

    name: str
    title: str
    about: str
    share: bool = False
    """Whether it is a share, shown in percent."""
    planned: bool = False
    """Whether it is set and not measured, so that it has no noise to smooth."""


METRICS = (
    Metric("loss", "Loss", "The sum of all terms; it should fall."),
    Metric("nce", "Instance loss", "L_NCE: the two views of an image should find each other."),
    Metric("swap", "Weak-label loss", "L_swap: images of one group should find each other."),
    Metric("cnce", "Instance loss of crops", "L_cNCE: the instance loss of the small crops."),
    Metric("cswap", "Weak-label loss of crops", "L_cswap: the weak-label loss of the small crops."),
    Metric("lr", "Learning rate", "It warms up, then decays to zero.", planned=True),
    Metric("gradient", "Gradient norm", "It may rise at first; a sudden jump is a warning."),
    Metric("knn_top1", "k-NN accuracy", "Test images that k-NN classifies correctly.", True),
    Metric("rankme", "RankMe", "Effective number of dimensions; near 1 means collapse."),
    Metric("alignment", "Alignment", "Distance between the two views of an image; 0 is best."),
    Metric("uniformity", "Uniformity", "0 means collapse, about −4 an even spread on the sphere."),
    Metric("collapsed", "Collapsed dimensions", "Hardly vary; over 50% is a collapse.", True),
    Metric("components", "Groups in a batch", "Typically about a quarter of the batch size."),
    Metric("largest_component", "Largest group", "Share of the batch; over 25% is too much.", True),
    Metric("agreement", "Agreement", "Of the two views on weak labels; needs no labels.", True),
    Metric("purity", "Purity of groups", "Images of the main class of their group.", True),
    Metric("collision_rate", "Collisions", "Negative pairs that are of the same class.", True),
    Metric("positives", "Positives", "Other images that an image takes as positives."),
    Metric("conflicting", "One-sided positives", "Pairs chosen by one of the two only.", True),
    Metric("neighbor_similarity", "Neighbor similarity", "Mean cosine of the K neighbors."),
    Metric("neighbors_changed", "New neighbors", "Not found by the previous search.", True),
    Metric("neighbor_same_class", "Correct neighbors", "Of the same class as the image.", True),
    Metric("images_per_second", "Images per second", "The speed of training."),
    Metric("data_wait", "Waiting for data", "If it is large, raise --num_workers.", True),
)
# What verdicts on runs use; the other curves are for a closer look.
_MATTER = {"loss", "knn_top1", "collapsed", "largest_component"}
_NOT_DRAWN = {"kind", "step", "epoch", "seconds", "search_seconds", "search_share"}
_NOT_DRAWN |= {"skipped", "overflows", "search_recall"}
_NOT_DRAWN |= {"pair_precision", "pair_recall", "crop_same_class"}


def charts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return every curve that one of the runs has.

    Returns:
        `x`, the name of the common axis: "epoch", or "step" until all runs have finished one;
        `charts`, each with `matters`, whether verdicts use it; with `lines`: for every run
        [[x, …], [y, …]] or None; and with `dots`, the same for single steps where the line is
        their running mean.
    """
    per_epoch = [_steps_per_epoch(run) for run in runs]
    by_epoch = any(per_epoch) and all(per_epoch[i] for i, run in enumerate(runs) if run.lines)
    scales = [steps or 1 if by_epoch else 1 for steps in per_epoch]
    found = []
    for metric in (*METRICS, *_other_metrics(runs)):
        curves = [_curve(run.lines, metric, x) for run, x in zip(runs, scales, strict=True)]
        if any(curve.line for curve in curves):
            lines, dots = [curve.line for curve in curves], [curve.dots for curve in curves]
            drawn = {"lines": lines, "dots": dots, "matters": metric.name in _MATTER}
            found.append({**metric._asdict(), **drawn})
    return {"x": "epoch" if by_epoch else "step", "charts": found}


def _steps_per_epoch(run: Run) -> float:
    """Return the steps of an epoch, known as soon as one has ended; 0 before."""
    epochs = run.epochs
    return epochs[-1]["step"] / epochs[-1]["epoch"] if epochs else 0


def _other_metrics(runs: Sequence[Run]) -> list[Metric]:
    """Return the metrics that only the method of a run knows."""
    known = _NOT_DRAWN | {metric.name for metric in METRICS}
    names = dict.fromkeys(name for run in runs for line in run.lines for name in line)
    return [
        Metric(name, name.replace("_", " ").capitalize(), "Logged by the method of the run.")
        for name in names
        if name not in known
    ]


class _Curve(NamedTuple):
    """One metric of one run, each [[x, …], [y, …]]."""

    line: list[list[float]] | None = None
    dots: list[list[float]] | None = None


def _curve(lines: Sequence[dict[str, Any]], metric: Metric, steps_per_x: float) -> _Curve:
    """Return a line through the epochs, or the steps and their running mean if epochs are few."""
    lines = [line for line in lines if is_number(line.get(metric.name))]
    epochs = [line for line in lines if line["kind"] in ("start", "epoch")]
    steps = [line for line in lines if line["kind"] == "step"]
    use_epochs = len(epochs) >= _ENOUGH_EPOCHS or len(steps) <= len(epochs)
    chosen = epochs if use_epochs else steps
    if not chosen:
        return _Curve()
    x = _thinned([line["step"] / steps_per_x for line in chosen])
    y = _thinned([float(line[metric.name]) for line in chosen])
    if use_epochs or metric.planned or len(y) < _ENOUGH_STEPS:
        return _Curve(_rounded(x, y))
    return _Curve(_rounded(x, _running_mean(y)), _rounded(x, y))


def _thinned(values: list[float]) -> list[float]:
    """Average neighboring values so that at most `_MAX_POINTS` remain."""
    count = len(values)
    if count <= _MAX_POINTS:
        return values
    ends = [round(count * part / _MAX_POINTS) for part in range(_MAX_POINTS + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]


def _running_mean(values: list[float]) -> list[float]:
    """Average each value with its neighbors, over about a fifth of all values."""
    reach = max(1, len(values) // 10)
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _rounded(*columns: list[float]) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in column] for column in columns]
