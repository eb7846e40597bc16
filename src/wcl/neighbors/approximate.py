"""Approximate search for sets too large to compare every image with every other, by faiss."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.neighbors.shards import Shards

# Share of the true neighbors that must be found; more and more lists are searched until they are.
_RECALL = 0.95
_MORE_LISTS = 1.25
_SAMPLE = 1000
_ROUNDING = 1e-6
_LISTS_SEARCHED_FIRST = 8
# Images from which the lists are themselves found through a graph (HNSW): comparing with each of
# the 4·√N list centers would then cost more than the lists.
_GRAPH_FROM = 1_000_000
_TRAINING_IMAGES_PER_LIST = 40
_KMEANS_ROUNDS = 5
_ROWS_AT_A_TIME = 2**16


class ApproximateSearch:
    """An inverted file: N features fall into about 4·√N lists, of which a query searches a few.

    How many is found out here: they become more until `recall`, the share of true neighbors
    found for a sample of the features, is high enough. Features are stored in half precision.

    Every process has such a file of the features that it keeps, and all are asked every question;
    all processes take part in making them and in every question.

    Args:
        shards: unit vectors.
        k: neighbors that will be asked for.
        candidates: the rows that may be found, in rising order.
    """

    def __init__(self, shards: Shards, k: int, candidates: Tensor) -> None:
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())
        self._shards = shards
        self._k = k
        own = shards.own(candidates)
        lists = _power_of_two(4 * math.sqrt(len(own)))
        lists = min(lists, _power_of_two(len(own) / (2 * _TRAINING_IMAGES_PER_LIST)))
        coarse = "_HNSW32" if len(own) >= _GRAPH_FROM else ""
        self._index = faiss.index_factory(
            shards.features.shape[1], f"IVF{lists}{coarse},SQfp16", faiss.METRIC_INNER_PRODUCT
        )
        self._lists = faiss.extract_index_ivf(self._index)
        self._lists.cp.niter = _KMEANS_ROUNDS
        if len(own):
            sample = spread(own, _TRAINING_IMAGES_PER_LIST * lists)
            self._index.train(_unit(shards[sample]).numpy())
            for rows in own.split(_ROWS_AT_A_TIME):
                self._index.add_with_ids(_unit(shards[rows]).numpy(), rows.numpy())
        self.recall = self._tune(candidates, lists)

    def _tune(self, candidates: Tensor, lists: int) -> float:
        sample = spread(candidates, _SAMPLE)
        truth, _ = self._shards.nearest(sample, self._k, candidates)
        most = max(self._shards.world.all_gather_object(lists))
        searched = _LISTS_SEARCHED_FIRST
        while True:
            self._lists.nprobe = min(searched, lists)
            # By similarity, not by number: of images alike any is as good as the other.
            cosine, found = self.nearest(sample)
            near = (cosine >= truth[:, -1:] - _ROUNDING) & (found != sample[:, None])
            recall = near.float().mean().item()
            if recall >= _RECALL or searched >= most:
                return recall
            searched = math.ceil(_MORE_LISTS * searched)

    def nearest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(n, k) cosines and (n, k) numbers of the nearest of these rows, themselves left out.

        Where fewer than k were found, the row itself stands in, with a cosine of −1.
        """
        world = self._shards.world
        every = self._of_own(_unit(self._shards.fetch(rows)))
        cosine, found = (
            world.gather(column).unflatten(0, (world.size, -1)).transpose(0, 1).flatten(1)
            for column in every
        )
        none = (found < 0) | (found == rows[:, None])
        # Most similar first, of equal ones the lower number.
        found, order = found.sort(dim=1)
        cosine, none = cosine.gather(1, order), none.gather(1, order)
        cosine = cosine.masked_fill(none, -math.inf)
        cosine, order = cosine.sort(dim=1, descending=True, stable=True)
        cosine, found = cosine[:, : self._k], found.gather(1, order[:, : self._k])
        none = cosine == -math.inf
        return cosine.masked_fill(none, -1), torch.where(none, rows[:, None], found)

    def _of_own(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """(n, k + 1) cosines and numbers of what this process keeps; −1 for the number of none.

        The cosines are computed from the features themselves: those of the file are rounded.
        """
        cosine = torch.full((len(queries), self._k + 1), -math.inf)
        if not self._index.ntotal:
            return cosine, torch.full_like(cosine, -1, dtype=torch.long)
        found = torch.from_numpy(self._index.search(queries.numpy(), self._k + 1)[1])
        for at, column in enumerate(found.clamp(min=self._shards.first).unbind(dim=1)):
            cosine[:, at] = (queries * _unit(self._shards[column])).sum(dim=1)
        return cosine, found


def spread(rows: Tensor, count: int) -> Tensor:
    """About `count` of the rows, evenly spread, the same ones every time."""
    # In double precision: single cannot tell row numbers beyond 16 million apart.
    at = torch.linspace(0, len(rows) - 1, min(count, len(rows)), dtype=torch.float64)
    return rows[at.round().long()]


def _unit(features: Tensor) -> Tensor:
    """Of length one again: half precision rounds lengths too."""
    return F.normalize(features.float(), dim=1)


def _power_of_two(near: float) -> int:
    return 1 if near < 1 else int(2 ** round(math.log2(near)))
