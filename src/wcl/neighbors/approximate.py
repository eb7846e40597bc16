"""Approximate search with faiss, for sets too large to compare every pair of images."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.neighbors.sharded import ShardedFeatures

# Fraction of the true neighbors that must be found; the number of lists searched grows until then.
_RECALL = 0.95
_MORE_LISTS = 1.25
_SAMPLE = 1000
_ROUNDING = 1e-6
_LISTS_SEARCHED_FIRST = 8
# From this many images on, the lists are themselves found through a graph (HNSW): comparing with
# each of the 4·√N list centers would cost more than searching the lists.
_GRAPH_FROM = 1_000_000
_TRAINING_IMAGES_PER_LIST = 40
_KMEANS_ROUNDS = 5
_ROWS_AT_A_TIME = 2**16


class ApproximateSearch:
    """An inverted file: N features fall into about 4·√N lists, and a query searches a few of them.

    The number of lists searched grows until `recall`, the fraction of true neighbors found for a
    sample of the features, is high enough. Features are stored in half precision.

    Every process indexes the features that it holds, and every query is sent to all of them, so
    all processes must take part in the construction and in every query.

    Args:
        features: unit vectors.
        k: number of neighbors per query.
        candidates: the rows to search, in ascending order.
    """

    def __init__(self, features: ShardedFeatures, k: int, candidates: Tensor) -> None:
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())
        self._features = features
        self._k = k
        local = features.local(candidates)
        lists = _power_of_two(4 * math.sqrt(len(local)))
        lists = min(lists, _power_of_two(len(local) / (2 * _TRAINING_IMAGES_PER_LIST)))
        coarse = "_HNSW32" if len(local) >= _GRAPH_FROM else ""
        self._index = faiss.index_factory(
            features.features.shape[1], f"IVF{lists}{coarse},SQfp16", faiss.METRIC_INNER_PRODUCT
        )
        self._lists = faiss.extract_index_ivf(self._index)
        self._lists.cp.niter = _KMEANS_ROUNDS
        if len(local):
            sample = evenly_spaced(local, _TRAINING_IMAGES_PER_LIST * lists)
            self._index.train(_unit(features[sample]).numpy())
            for rows in local.split(_ROWS_AT_A_TIME):
                self._index.add_with_ids(_unit(features[rows]).numpy(), rows.numpy())
        self.recall = self._tune(candidates, lists)

    def _tune(self, candidates: Tensor, lists: int) -> float:
        """Search more and more lists until the recall suffices; return the recall."""
        sample = evenly_spaced(candidates, _SAMPLE)
        truth, _ = self._features.nearest(sample, self._k, candidates)
        limit = max(self._features.world.all_gather_object(lists))
        searched = _LISTS_SEARCHED_FIRST
        while True:
            self._lists.nprobe = min(searched, lists)
            # Compare similarities, not numbers: any of several equal images is a true neighbor.
            cosine, neighbors = self.nearest(sample)
            correct = (cosine >= truth[:, -1:] - _ROUNDING) & (neighbors != sample[:, None])
            recall = correct.float().mean().item()
            if recall >= _RECALL or searched >= limit:
                return recall
            searched = math.ceil(_MORE_LISTS * searched)

    def nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (n, k) cosines and (n, k) numbers of the nearest other rows of these rows.

        Where fewer than k are found, the row itself fills the place, with a cosine of −1.
        """
        world = self._features.world
        columns = self._search_local(_unit(self._features.fetch(rows)))
        cosine, neighbors = (
            world.all_gather(column).unflatten(0, (world.size, -1)).transpose(0, 1).flatten(1)
            for column in columns
        )
        invalid = (neighbors < 0) | (neighbors == rows[:, None])
        # Most similar first, equal ones by ascending number.
        neighbors, order = neighbors.sort(dim=1)
        cosine, invalid = cosine.gather(1, order), invalid.gather(1, order)
        cosine = cosine.masked_fill(invalid, -math.inf)
        cosine, order = cosine.sort(dim=1, descending=True, stable=True)
        cosine, neighbors = cosine[:, : self._k], neighbors.gather(1, order[:, : self._k])
        invalid = cosine == -math.inf
        return cosine.masked_fill(invalid, -1), torch.where(invalid, rows[:, None], neighbors)

    def _search_local(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return (n, k + 1) cosines and numbers among the local rows; −1 where there is none.

        The cosines are computed from the features themselves: those of the index are rounded.
        """
        cosine = torch.full((len(queries), self._k + 1), -math.inf)
        if not self._index.ntotal:
            return cosine, torch.full_like(cosine, -1, dtype=torch.long)
        neighbors = torch.from_numpy(self._index.search(queries.numpy(), self._k + 1)[1])
        for at, column in enumerate(neighbors.clamp(min=self._features.offset).unbind(dim=1)):
            cosine[:, at] = (queries * _unit(self._features[column])).sum(dim=1)
        return cosine, neighbors


def evenly_spaced(rows: Tensor, count: int) -> Tensor:
    """Return about `count` of the rows, evenly spaced and the same every time."""
    # In double precision: single cannot represent row numbers beyond 16 million.
    at = torch.linspace(0, len(rows) - 1, min(count, len(rows)), dtype=torch.float64)
    return rows[at.round().long()]


def _unit(features: Tensor) -> Tensor:
    """Normalize again: half precision rounds lengths, too."""
    return F.normalize(features.float(), dim=1)


def _power_of_two(value: float) -> int:
    """Return the nearest power of two, at least 1."""
    return 1 if value < 1 else int(2 ** round(math.log2(value)))
