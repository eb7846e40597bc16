"""The curves of runs: which there are, what they mean, and no more points than can be seen."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from wcl.report.runs import Run
from wcl.training.metrics_lines import is_number

_MOST_POINTS = 300
_ENOUGH_EPOCHS = 5  # from then on the means of epochs say more than single steps
_ENOUGH_STEPS = 3  # to draw a mean among them


class Metric(NamedTuple):
    """A number of metrics.jsonl: its title and what to make of it."""

    name: str
    title: str
    about: str
    share: bool = False
    """Whether it is a part of a whole, written in per cent."""
    planned: bool = False
    """Whether it is set, not measured: then it does not scatter."""


METRICS = (
    Metric("loss", "Loss", "All terms together; it should fall."),
    Metric("nce", "Loss of instances", "L_NCE: an image's two views must find each other."),
    Metric("swap", "Loss of weak labels", "L_swap: images of one group must find each other."),
    Metric("cnce", "Loss of crops", "L_cNCE: the same as for instances, of the small crops."),
    Metric("cswap", "Loss of crops' weak labels", "L_cswap: the same as for groups, of the crops."),
    Metric("lr", "Learning rate", "It warms up, then falls to zero.", planned=True),
    Metric("gradient", "Length of the gradient", "It may rise at first; a leap is a warning."),
    Metric("knn_top1", "k-NN accuracy", "Test images that their neighbors classify rightly.", True),
    Metric("rankme", "RankMe", "Directions in use; near 1 everything has collapsed."),
    Metric("alignment", "Alignment", "How far an image's two views lie apart; 0 is best."),
    Metric("uniformity", "Uniformity", "0 is collapse, about −4 an even spread over the sphere."),
    Metric("collapsed", "Idle dimensions", "Dimensions that hardly vary; none is best.", True),
    Metric(
        "components", "Groups in a batch", "Weak labels; about a quarter of the batch is usual."
    ),
    Metric(
        "largest_component", "Largest group", "Its part of the batch; it must stay small.", True
    ),
    Metric("purity", "Purity of groups", "Images that are of their group's main class.", True),
    Metric("collision_rate", "Collisions", "Negative pairs that are really of one class.", True),
    Metric("neighbor_similarity", "Nearness of neighbors", "Mean cosine of K neighbors."),
    Metric("neighbors_changed", "New neighbors", "Not there at the search before.", True),
    Metric("neighbor_same_class", "Right neighbors", "Of the image's own class.", True),
    Metric("images_per_second", "Images per second", "How fast it trains."),
    Metric(
        "data_wait", "Waiting for data", "Part of the time; if large, raise --num_workers.", True
    ),
)


def charts(runs: Sequence[Run]) -> dict[str, Any]:
    """Every curve that one of the runs has, for the page's script.

    Returns:
        `x`, the name of the common axis: epochs, or steps while a run has not ended its first;
        `charts`, each with `lines`: for every run [[x, …], [y, …]], or None; and with `dots`, the
        same of single steps where they scatter about the line.
    """
    per_epoch = [steps_per_epoch(run.lines) for run in runs if run.lines]
    by_epoch = bool(per_epoch) and all(per_epoch)
    found = []
    for metric in METRICS:
        drawn = [_drawn(run, metric, by_epoch) for run in runs]
        if any(one.line for one in drawn):
            lines, dots = [one.line for one in drawn], [one.dots for one in drawn]
            found.append({**metric._asdict(), "lines": lines, "dots": dots})
    return {"x": "epoch" if by_epoch else "step", "charts": found}


def steps_per_epoch(lines: Sequence[dict[str, Any]]) -> float | None:
    """Known as soon as one epoch has ended."""
    ended = [line for line in lines if line.get("kind") == "epoch" and line.get("epoch")]
    return ended[-1]["step"] / ended[-1]["epoch"] if ended else None


class _Drawn(NamedTuple):
    """One metric of one run, each [[x, …], [y, …]]."""

    line: list[list[float]] | None = None
    dots: list[list[float]] | None = None


def _drawn(run: Run, metric: Metric, by_epoch: bool) -> _Drawn:
    """A line of the epochs; as long as they are few, of the means of steps, and these as dots."""
    with_it = [line for line in run.lines if is_number(line.get(metric.name))]
    epochs = [line for line in with_it if line.get("kind") == "epoch"]
    steps = [line for line in with_it if line.get("kind") == "step"]
    of_epochs = len(epochs) >= _ENOUGH_EPOCHS or len(steps) <= len(epochs)
    chosen = epochs if of_epochs else steps
    if not chosen:
        return _Drawn()
    scale = (steps_per_epoch(run.lines) or 1) if by_epoch else 1
    x = _thinned([line["step"] / scale for line in chosen])
    y = _thinned([float(line[metric.name]) for line in chosen])
    if of_epochs or metric.planned or len(y) < _ENOUGH_STEPS:
        return _Drawn(_rounded(x, y))
    return _Drawn(_rounded(x, _running_mean(y)), _rounded(x, y))


def _thinned(values: list[float]) -> list[float]:
    """At most so many values: means of neighboring ones."""
    count = len(values)
    if count <= _MOST_POINTS:
        return values
    ends = [round(count * part / _MOST_POINTS) for part in range(_MOST_POINTS + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]


def _running_mean(values: list[float]) -> list[float]:
    """Each value's mean with its neighbors, together about a fifth of all."""
    reach = max(1, len(values) // 10)
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _rounded(*columns: list[float]) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in column] for column in columns]
