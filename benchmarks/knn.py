"""Neighbor search: exact search against faiss, approximate search against exact.

Every query takes the same time, so the time of all queries is extrapolated from some of them. The
time of approximate search includes building its index.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.memory import extra_bytes
from benchmarks.timing import medians
from wcl.neighbors import nearest
from wcl.neighbors.approximate import ApproximateSearch, evenly_spaced
from wcl.neighbors.sharded import ShardedFeatures

Clock = Callable[[], float]
_K = 4
_EXACT = (50_000, 512)  # images and features of the comparison with faiss
_SIZES = (10_000, 20_000, 50_000, 100_000, 200_000)
_QUERIES = 5_000


def measure(rounds: int) -> dict[str, float]:
    """Return the ratios, and the seconds for several numbers of images."""
    figures = _against_faiss(rounds)
    rows = features_like(max(_SIZES), 128)
    for size in _SIZES:
        figures[f"exact_seconds_{size}"] = exact_seconds(rows[:size], _QUERIES)
        approximate, recall = approximate_seconds(rows[:size], _QUERIES)
        figures[f"approximate_seconds_{size}"] = approximate
    exact = figures[f"exact_seconds_{max(_SIZES)}"]
    return figures | {"approx_recall": recall, "approx_over_exact": approximate / exact}


def features_like(count: int, dimensions: int, latent: int = 16) -> Tensor:
    """Return unit vectors on a low-dimensional curved surface plus noise, like those of an encoder.

    Shape: (count, dimensions).
    """
    generator = torch.Generator().manual_seed(0)
    normal = partial(torch.randn, generator=generator)
    hidden = torch.tanh(normal(count, latent) @ normal(latent, dimensions) / latent**0.5)
    rows = hidden @ normal(dimensions, dimensions) / dimensions**0.5
    return F.normalize(rows + 0.1 * normal(count, dimensions), dim=1)


def _against_faiss(rounds: int) -> dict[str, float]:
    """Compare exact search with faiss's flat index."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    rows = features_like(*_EXACT)
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows.numpy())
    queries = torch.arange(0, len(rows), len(rows) // _QUERIES)
    extra = extra_bytes(partial(nearest, rows[queries], rows, _K, queries))
    seconds = medians(
        {
            "ours": partial(nearest, rows[queries], rows, _K, queries),
            "faiss": partial(index.search, rows[queries].numpy(), _K + 1),
        },
        rounds,
    )
    return {
        "ours_over_faiss_flat": seconds["ours"] / seconds["faiss"],
        "extra_gigabytes": extra / 1e9,
    }


def exact_seconds(rows: Tensor, queries: int, clock: Clock = time.perf_counter) -> float:
    """Return the time to search for all rows, from that of some."""
    some = evenly_spaced(torch.arange(len(rows)), queries)
    began = clock()
    nearest(rows[some], rows, _K, some)
    return (clock() - began) * len(rows) / len(some)


def approximate_seconds(
    rows: Tensor, queries: int, clock: Clock = time.perf_counter
) -> tuple[float, float]:
    """Return the time to build and tune the index and search for all rows, and the recall."""
    every = torch.arange(len(rows))
    some = evenly_spaced(every, queries)
    began = clock()
    search = ApproximateSearch(ShardedFeatures(rows), _K, every)
    built = clock()
    search.nearest(some)
    searched = clock() - built
    return built - began + searched * len(rows) / len(some), search.recall
