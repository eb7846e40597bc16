"""A race: k-NN accuracy of ours and of lightly's SimCLR after the same time on the same images.

Each side trains alone in a process of its own, with all the threads it wants, ours and lightly in
turn for every seed. Imports are excluded from the time of both, reading the images is included.
Snapshots of the backbone are evaluated afterwards by the same weighted k-NN on images without
augmentation. An interrupted race continues where it stopped: every finished run is a JSON file.
"""

import json
import math
import shutil
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.race.images import write_images
from benchmarks.race.job import SIDES, Job
from benchmarks.race.ours import run_config
from benchmarks.race.results import final_mean, write_results
from benchmarks.race.snapshots import snapshots_in
from wcl.config import KnnConfig
from wcl.evaluation.knn import knn
from wcl.evaluation.splits import labeled_splits
from wcl.models.encoder import load
from wcl.system.errors import InputError
from wcl.system.files import atomic_write
from wcl.system.progress import log, track, without_repeats

__all__ = ["add_arguments", "race"]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `race` to a command line."""
    group = parser.add_argument_group("race", "k-NN accuracy after the same time")
    group.add_argument("--data", default="", help="labeled images, such as cifar10")
    group.add_argument("--images", type=int, default=20_000, help="training images; 0 for all")
    group.add_argument("--minutes", type=float, default=20, help="time of each training")
    group.add_argument("--seeds", type=int, default=3, help="trainings of each side")
    group.add_argument("--recipe", default="cifar10-cpu-fast", help="recipe of our side")
    group.add_argument("--out", default="runs/peers", help="folder of the results")


def race(
    data: str, images: int, minutes: float, seeds: int, recipe: str, out: str
) -> dict[str, float]:
    """Race, write table and plot into `out`, and return the mean difference in points.

    Args:
        data: labeled images, as for `wcl pretrain --data`.
        images: number of training images, drawn at random once; 0 for all.
        minutes: time of each training.
        seeds: number of trainings of each side.
        recipe: recipe of our side. Both sides train its network.
        out: folder of the results.

    Raises:
        InputError: the folder holds another race, or there is nothing to race.
    """
    for name, value, least in (("seeds", seeds, 1), ("images", images, 0)):
        if value < least:
            raise InputError(f"--{name}: must be at least {least}, not {value}")
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes: must be a number above 0, not {minutes:g}")
    folder = Path(out).absolute()
    described = {"data": data, "images": images, "minutes": minutes, "recipe": recipe}
    _check_same_race(folder, described)
    run_config(Job(folder, "ours", 0, recipe, minutes))  # fails if there is no such recipe
    write_images(data, images, folder / "images")
    _cached(folder / "race.json", lambda: described)
    jobs = [Job(folder, side, seed, recipe, minutes) for seed in range(seeds) for side in SIDES]
    results = []
    for number, job in enumerate(jobs, 1):
        log(f"race: {job.side}, seed {job.seed}, training {number} of {len(jobs)}")
        results.append(_cached(job.result, partial(_train_and_evaluate, job)))
    write_results(folder, results, minutes, f"{data}, {minutes:g} minutes, {recipe}")
    ours, lightly = (final_mean(results, side) for side in SIDES)
    return {"knn_points_over_lightly": 100 * (ours - lightly)}


def _check_same_race(folder: Path, described: dict[str, Any]) -> None:
    file = folder / "race.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else described
    for name, value in described.items():
        if found[name] != value:
            raise InputError(
                f"--{name}: {value}, but the race in {folder} has {found[name]}; choose another "
                "--out"
            )


def _train_and_evaluate(job: Job) -> dict[str, Any]:
    def train() -> dict[str, Any]:
        shutil.rmtree(job.folder, ignore_errors=True)  # of an interrupted training
        facts: dict[str, Any] = _in_new_process(_train, job)
        return facts

    facts = _cached(job.folder / "trained.json", train)
    points = _in_new_process(_evaluate, job)
    shutil.rmtree(job.folder / "snapshots")
    return {"side": job.side, "seed": job.seed, **facts, "points": points}


def _in_new_process(call: Callable[[Job], Any], job: Job) -> Any:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call, job).result()


def _train(job: Job) -> dict[str, Any]:
    facts: dict[str, Any] = import_module(f"benchmarks.race.{job.side}").train(job)
    return facts


def _evaluate(job: Job) -> list[tuple[float, float]]:
    """Return the seconds and the k-NN accuracy of every snapshot."""
    config = KnnConfig(data=job.images)
    snapshots = snapshots_in(job.folder / "snapshots")
    described = load(snapshots[0][1]).description
    points = []
    with without_repeats():
        splits = labeled_splits(config, described.channels, described.levels)
        for seconds, path in track(snapshots, "evaluating snapshots"):
            points.append((seconds, knn(load(path), *splits, config).score))
    return points


def _cached(file: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a JSON file, which is computed and written if it does not exist."""
    if not file.exists():
        content = json.dumps(compute(), indent=1)
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as unfinished:
            unfinished.write_text(content + "\n", encoding="utf-8")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
