"""The measured series, their plots, and the exponents that arithmetic predicts."""

from collections.abc import Mapping
from typing import NamedTuple


class Series(NamedTuple):
    """The costs of one part of training by size."""

    label: str
    expected_time: float
    expected_memory: float


class Plot(NamedTuple):
    """Series over the same sizes."""

    axis: str
    series: Mapping[str, Series]


PLOTS = {
    "batch-size": Plot(
        "images in a batch",
        {
            "losses": Series("losses and weak labels", 2, 1),
            "network": Series("network", 1, 1),
            "network_micro": Series("network, micro-batches of 512", 1, 1),
        },
    ),
    "image-size": Plot(
        "pixels of a side",
        {
            "augmentation": Series("augmentation", 2, 2),
            "step": Series("step", 2, 2),
        },
    ),
    "images": Plot(
        "images of the data set",
        {
            "opening": Series("opening a folder", 1, 1),
            "reopening": Series("opening it again", 1, 1),
            "bank": Series("feature bank, an epoch", 1, 1),
            "exact": Series("exact search", 2, 0),
            "approximate": Series("approximate search", 1.5, 1),
            "loader_small": Series("loader, an epoch from memory", 1, 1),
            "loader_photos": Series("loader, an epoch of photos", 1, 1),
        },
    ),
    "processes": Plot(
        "processes on the same cores",
        {
            "elapsed": Series("step, elapsed", 0, 0),
            "computed": Series("step, computed by all", 0, 0),
        },
    ),
}

SERIES = {name: series for plot in PLOTS.values() for name, series in plot.series.items()}


def points(figures: Mapping[str, float], name: str, kind: str) -> dict[int, float]:
    """Return the costs of a series by size, ascending.

    Args:
        figures: as `benchmarks.growth.measure` returns them.
        name: of the series.
        kind: seconds or gb.
    """
    start = f"{name}_{kind}_"
    sizes = (key.removeprefix(start) for key in figures if key.startswith(start))
    numbers = sorted(int(size) for size in sizes if size.isdecimal())
    return {number: figures[f"{start}{number}"] for number in numbers}
