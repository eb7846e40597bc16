"""Power laws: how a cost grows with a size."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class PowerLaw(NamedTuple):
    """cost = factor · size^exponent."""

    exponent: float
    factor: float

    def at(self, size: float) -> float:
        """Return the cost of a size."""
        return float(self.factor * size**self.exponent)


def upper_half(sizes: list[int]) -> list[int]:
    """Return the larger half of ascending sizes, where fixed costs matter least.

    >>> upper_half([1, 2, 4, 8, 16])
    [4, 8, 16]
    """
    return sizes[len(sizes) // 2 :]


def power_law(costs: Mapping[int, float]) -> PowerLaw:
    """Fit a power law by least squares between the logarithms of sizes and costs.

    Costs that are not positive numbers are left out; with fewer than two, the result is NaN.
    """
    points = [(size, cost) for size, cost in costs.items() if cost > 0]
    if len(points) < 2:
        return PowerLaw(float("nan"), float("nan"))
    sizes, values = np.log(np.array(points, dtype=float)).T
    slope, intercept = np.polyfit(sizes, values, 1)
    return PowerLaw(float(slope), float(np.exp(intercept)))
