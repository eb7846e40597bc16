"""K nearest neighbors by cosine: exact and approximate search, the bank of a run's features."""

from wcl.neighbors.bank import FeatureBank, Found
from wcl.neighbors.exact import nearest

__all__ = ["FeatureBank", "Found", "nearest"]
