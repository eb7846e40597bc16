"""Number of images: opening a folder, the feature bank, the search of an epoch, the loader.

Nothing is trained. What every image or query takes alike is timed on some and extrapolated.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from benchmarks.knn import approximate_seconds, exact_seconds, features_like
from benchmarks.memory import Cost, cpu_seconds, in_new_process, least_cost
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import ArraySource, Source, open_source, subset
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.neighbors import FeatureBank
from wcl.paper.synthetic import write_photos
from wcl.system.progress import log

_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_DIMENSIONS = 128
_STORED, _QUERIES = 1024, 1000
_SMALL_BATCH, _PHOTO_BATCH, _BATCHES = 256, 32, 5
_PHOTOS = 16  # files, which stand for any number of photos
_PER_FOLDER = 1000
_SETTLED = 11.0  # seconds after which the listing of a folder is cached


def measure(rounds: int) -> dict[str, dict[int, Cost]]:
    """Return the costs by number of images."""
    log(f"writing {max(_SIZES):,} empty files")
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as photos:
        folders = write_nested(Path(place), _SIZES)
        write_photos(Path(photos), _PHOTOS)
        time.sleep(_SETTLED)
        costs: dict[str, dict[int, Cost]] = {}
        for images in _SIZES:
            log(f"data sets of {images:,} images")
            for name, prepare, args in (
                ("opening", _opening, (folders[images],)),
                ("reopening", _reopening, (folders[images],)),
                ("bank", _bank, (images,)),
                ("exact", _exact, (images,)),
                ("approximate", _approximate, (images,)),
                ("loader_small", _loader_small, (images,)),
                ("loader_photos", _loader_photos, (photos, images)),
            ):
                cost = in_new_process(least_cost, rounds, prepare, *args)
                costs.setdefault(name, {})[images] = cost
        return costs


def write_nested(folder: Path, sizes: tuple[int, ...]) -> dict[int, Path]:
    """Write empty image files into nested folders; return the folder with each number of files.

    The files of a smaller number are part of the larger ones, so none is written twice.
    """
    folders = {}
    for images, fewer in pairwise((*sorted(sizes, reverse=True), 0)):
        folder.mkdir(exist_ok=True)
        folders[images] = folder
        for first in range(0, images - fewer, _PER_FOLDER):
            part = folder / f"{first // _PER_FOLDER:04d}"
            part.mkdir()
            for number in range(min(_PER_FOLDER, images - fewer - first)):
                (part / f"{number:04d}.jpg").touch()
        folder = folder / "fewer"
    return folders


def _opening(folder: Path) -> Callable[[], float]:
    def without_cache() -> float:
        with tempfile.TemporaryDirectory() as cache:
            return cpu_seconds(_open, folder, cache)

    return without_cache


def _reopening(folder: Path) -> Callable[[], float]:
    cache = tempfile.TemporaryDirectory()
    _open(folder, cache.name)
    return lambda: cpu_seconds(_open, folder, cache.name)


def _open(folder: Path, cache: str) -> None:
    """Do what a run does until it knows its images and their fingerprint."""
    os.environ["WCL_CACHE"] = cache
    open_source(str(folder)).fingerprint()


def _bank(images: int) -> Callable[[], float]:
    order = np.random.default_rng(0).permutation(images)
    features = torch.randn(_STORED, _DIMENSIONS, generator=torch.Generator().manual_seed(0))

    def store_all() -> None:
        bank = FeatureBank(images, _DIMENSIONS)
        for start in range(0, images, _STORED):
            index = order[start : start + _STORED]
            bank.store([index], features[: len(index)])
        assert len(bank.features) == images  # reading them writes those of the last step

    return partial(cpu_seconds, store_all)


def _exact(images: int) -> Callable[[], float]:
    return partial(
        exact_seconds, features_like(images, _DIMENSIONS).half(), _QUERIES, time.process_time
    )


def _approximate(images: int) -> Callable[[], float]:
    rows = features_like(images, _DIMENSIONS).half()
    return lambda: approximate_seconds(rows, _QUERIES, time.process_time)[0]


def _loader_small(images: int) -> Callable[[], float]:
    def epoch() -> float:
        pixels = torch.full((images, 3, 32, 32), 128, dtype=torch.uint8)
        return _epoch_seconds(ArraySource("gray", pixels), _SMALL_BATCH, 32)

    return epoch


def _loader_photos(folder: str, images: int) -> Callable[[], float]:
    repeated = subset(open_source(folder), np.arange(images, dtype=np.int64) % _PHOTOS)
    return partial(_epoch_seconds, repeated, _PHOTO_BATCH, 224)


def _epoch_seconds(source: Source, batch_size: int, image_size: int) -> float:
    """Return the time of an epoch of the loader, from its start and some of its batches."""
    began = time.process_time()
    loader = Loader(source, batch_size, 0, torch.device("cpu"), num_workers=0)
    batches = loader.epoch(0, [ViewSpec(ViewMaker(AugmentConfig(), image_size), 2)])
    seconds = []
    for _ in range(min(_BATCHES, loader.steps_per_epoch)):
        next(batches)
        now = time.process_time()
        seconds.append(now - began)
        began = now
    batch = min(seconds)
    return seconds[0] + batch * (loader.steps_per_epoch - 1)
