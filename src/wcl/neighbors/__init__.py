"""k-nearest-neighbor search by cosine similarity, and the feature bank of a training run."""

from wcl.neighbors.bank import FeatureBank, SearchResult
from wcl.neighbors.crops import NeighborCrops
from wcl.neighbors.exact import nearest

__all__ = ["FeatureBank", "NeighborCrops", "SearchResult", "nearest"]
