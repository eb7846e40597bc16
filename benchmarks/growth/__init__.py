"""How the cost of training grows: time and peak memory by batch size, image size, number of images
and number of processes, with fitted exponents.
"""

from collections.abc import Mapping

from rich.table import Table

from benchmarks.growth import batch, image_size, images, processes
from benchmarks.growth.draw import draw
from benchmarks.growth.fit import power_law, upper_half
from benchmarks.growth.series import SERIES, points

__all__ = ["draw", "measure", "table"]

_COLUMNS = ("seconds", "exponent", "expected", "GB", "exponent", "expected")


def measure(rounds: int) -> dict[str, float]:
    """Return the seconds and gigabytes of every series and size, and the fitted exponents."""
    costs = (
        batch.measure(rounds)
        | image_size.measure(rounds)
        | images.measure(rounds)
        | processes.measure(rounds)
    )
    figures: dict[str, float] = {}
    for name, by_size in costs.items():
        for size, cost in by_size.items():
            figures |= {f"{name}_seconds_{size}": cost.seconds, f"{name}_gb_{size}": cost.gigabytes}
        for kind in ("seconds", "gb"):
            known = points(figures, name, kind)
            fitted = {size: known[size] for size in upper_half(list(known))}
            figures[f"{name}_{kind}_exponent"] = power_law(fitted).exponent
    for name in ("elapsed", "computed"):
        for size in processes.SIZES[1:]:
            ideal = figures[f"{name}_seconds_1"]
            figures[f"{name}_efficiency_{size}"] = ideal / figures[f"{name}_seconds_{size}"]
    return figures


def table(figures: Mapping[str, float]) -> Table:
    """Return the cost of the largest size of every series, and the exponents."""
    grid = Table(
        "", "sizes fitted", "seconds", "exponent", "expected", "GB", "exponent", "expected"
    )
    for name, series in SERIES.items():
        seconds, gigabytes = (points(figures, name, kind) for kind in ("seconds", "gb"))
        fitted = upper_half(list(seconds))
        grid.add_row(
            series.label,
            f"{fitted[0]:,}–{fitted[-1]:,}",
            f"{seconds[fitted[-1]]:.3g}",
            f"{figures[f'{name}_seconds_exponent']:.2f}",
            f"{series.expected_time:g}",
            f"{gigabytes[fitted[-1]]:.2g}",
            f"{figures[f'{name}_gb_exponent']:.2f}",
            f"{series.expected_memory:g}",
        )
    for key in figures:
        if "_efficiency_" in key:
            grid.add_row(key, "", f"{figures[key]:.2f}")
    return grid
