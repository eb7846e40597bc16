"""Approximate search for sets too large to compare every image with every other, by faiss."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.knn.exact import nearest

# Share of the true neighbours that must be found; more and more lists are searched until they are.
_RECALL = 0.95
_MORE_LISTS = 1.25
_SAMPLE = 1000
_ROUNDING = 1e-6
_LISTS_SEARCHED_FIRST = 8
# Images from which the lists are themselves found through a graph (HNSW): comparing with each of
# the 4·√N list centres would then cost more than the lists.
_GRAPH_FROM = 1_000_000
_TRAINING_IMAGES_PER_LIST = 40
_KMEANS_ROUNDS = 5
_ROWS_AT_A_TIME = 2**16


class ApproximateSearch:
    """An inverted file: N features fall into about 4·√N lists, of which a query searches a few.

    How many is found out here: they become more until `recall`, the share of true neighbours
    found for a sample of the features, is high enough. Features are stored in half precision.

    Args:
        features: (N, D) unit vectors, on the host.
        k: neighbours that will be asked for.
        candidates: the rows that may be found.
    """

    def __init__(self, features: Tensor, k: int, candidates: Tensor) -> None:
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())
        self._features = features
        self._k = k
        lists = _power_of_two(4 * math.sqrt(len(candidates)))
        lists = min(lists, _power_of_two(len(candidates) / (2 * _TRAINING_IMAGES_PER_LIST)))
        coarse = "_HNSW32" if len(candidates) >= _GRAPH_FROM else ""
        self._index = faiss.index_factory(
            features.shape[1], f"IVF{lists}{coarse},SQfp16", faiss.METRIC_INNER_PRODUCT
        )
        self._lists = faiss.extract_index_ivf(self._index)
        self._lists.cp.niter = _KMEANS_ROUNDS
        sample = spread(candidates, _TRAINING_IMAGES_PER_LIST * lists)
        self._index.train(self._unit(sample))
        for rows in candidates.split(_ROWS_AT_A_TIME):
            self._index.add_with_ids(self._unit(rows), rows.numpy())
        self.recall = self._tune(candidates, lists)

    def _tune(self, candidates: Tensor, lists: int) -> float:
        sample = spread(candidates, _SAMPLE)
        truth, _ = nearest(self._features[sample], self._features, self._k, sample, candidates)
        searched = _LISTS_SEARCHED_FIRST
        while True:
            self._lists.nprobe = min(searched, lists)
            _, found = self.nearest(sample)
            recall = self._share_as_near(sample, found, truth[:, -1:])
            if recall >= _RECALL or searched >= lists:
                return recall
            searched = math.ceil(_MORE_LISTS * searched)

    def nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(n, k) cosines and (n, k) numbers of the nearest of these rows, themselves left out."""
        cosine, index = self._index.search(self._unit(rows), self._k + 1)
        # Lists with fewer than k + 1 members leave gaps, marked −1: the image itself fills them.
        found = torch.from_numpy(index)
        found = torch.where(found < 0, rows[:, None], found)
        # Itself first, or if it was not found, the last: k others stay, in their order.
        own = found == rows[:, None]
        own[~own.any(dim=1), -1] = True
        order = own.long().argsort(dim=1, stable=True)[:, :-1]
        cosine = torch.from_numpy(cosine).clamp(min=-1)
        return cosine.gather(1, order), found.gather(1, order)

    def _share_as_near(self, rows: Tensor, found: Tensor, least: Tensor) -> float:
        """Share of what was found that is as near as the k-th true neighbour.

        By similarity, not by number: of images alike any is as good as the other.
        """
        queries, others = (
            F.normalize(self._features[i].float(), dim=-1) for i in (rows[:, None], found)
        )
        near = (queries * others).sum(dim=2) >= least - _ROUNDING
        return (near & (found != rows[:, None])).float().mean().item()

    def _unit(self, rows: Tensor) -> Any:
        """Of length one again: half precision rounds lengths too."""
        return F.normalize(self._features[rows].float(), dim=1).numpy()


def spread(rows: Tensor, count: int) -> Tensor:
    """About `count` of the rows, evenly spread, the same ones every time."""
    # In double precision: single cannot tell row numbers beyond 16 million apart.
    at = torch.linspace(0, len(rows) - 1, min(count, len(rows)), dtype=torch.float64)
    return rows[at.round().long()]


def _power_of_two(near: float) -> int:
    return int(2 ** max(0, round(math.log2(near))))
