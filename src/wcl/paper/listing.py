"""`wcl reproduce NAME --list`: the cells, the data they need, and their estimated time."""

import dataclasses
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from wcl.config import LogConfig, PretrainConfig
from wcl.paper import sources
from wcl.paper.result_store import ResultStore, settings_of
from wcl.paper.synthetic import write_noise, write_photos
from wcl.paper.tables import Cell
from wcl.system.progress import console, track
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

_SMALL_BATCH, _LARGE_BATCH = 12, 256  # FNCancel takes up to 10 images for positives
_QUICK_STEP = 1.0  # seconds; if the small batch takes less, the large one is timed


def listing(store: ResultStore, name: str, cells: tuple[Cell, ...], seeds: range) -> dict[str, Any]:
    """Return the cells of a table: figures, data, number of runs done, seconds of a run.

    The seconds are those of pretraining, estimated from a few steps on synthetic images.
    """
    names = sources.needed(cells)
    store = dataclasses.replace(store, sources={**dict.fromkeys(names, ""), **store.sources})
    scale = store.config.scale
    seconds_per_image: dict[str, float] = {}
    lines = []
    for cell in track(cells, "timing a few steps"):
        like = cell.run.time_of or cell.run  # which takes as long
        settings = settings_of(like, 0, "", store.config)
        key = repr((settings.method, settings.model, settings.image_size, settings.crops.count))
        if key not in seconds_per_image:
            seconds_per_image[key] = _seconds_per_image(settings, like.data, scale)
        images = settings.epochs * sources.images_per_epoch(settings, like.data, scale)
        own = ", equal time" if cell.run.time_of else ""  # its epochs are not known yet
        lines.append(
            {
                "row": cell.row,
                "figures": cell.columns,
                "measure": cell.measure.protocol,
                "data": sources.needed((cell,)),
                "runs": [f"{store.run_folder(cell.run, seed).name}{own}" for seed in seeds],
                "done": sum(store.figures(cell, seed) is not None for seed in seeds),
                "seconds": seconds_per_image[key] * images,
            }
        )
    about = {"table": name, "scale": scale, "seeds": len(seeds)}
    return {**about, "cells": lines, "estimated_seconds_left": seconds_left(lines)}


def seconds_left(lines: list[dict[str, Any]]) -> float:
    """Return the seconds of all runs that are not done; a run that cells share counts once."""
    open_runs = {
        run: line["seconds"]
        for line in lines
        for run in line["runs"][line["done"] :]  # seeds are made in order
    }
    return float(sum(open_runs.values()))


def show_listing(found: dict[str, Any]) -> None:
    """Print the cells, where to get the data sets, and the estimated time."""
    table = RichTable("row", "figures", "data", "done", "pretraining, each")
    for line in found["cells"]:
        figures = line["figures"]
        table.add_row(
            escape(line["row"]),
            figures[0] if len(figures) == 1 else f"{figures[0]} … {figures[-1]}",
            ", ".join(line["data"]),
            f"{line['done']} of {found['seeds']}",
            duration(line["seconds"]),
        )
    Console().print(table)
    if found["scale"] == "smoke":
        print("synthetic images replace all data sets except the digits; no data are needed")
    else:
        for name in dict.fromkeys(name for line in found["cells"] for name in line["data"]):
            print(f"{name}: {sources.WHERE[name]}")
    print(
        f"estimated from a few steps on this machine at its current load: "
        f"{duration(found['estimated_seconds_left'])} of pretraining are left, evaluation not "
        "included"
    )


def duration(seconds: float) -> str:
    """Format a time, roughly.

    >>> duration(40), duration(4000), duration(40_000), duration(4_000_000)
    ('40 s', '67 min', '11 h', '46 days')
    """
    for unit, size, limit in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72)):
        if seconds < limit * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def _seconds_per_image(settings: PretrainConfig, data: str, scale: str) -> float:
    """Time a few steps of a run with these settings, with the large batch if it is quick."""
    was_quiet = console().quiet
    console().quiet = True
    try:
        for batch_size in (_SMALL_BATCH, _LARGE_BATCH):
            images = min(batch_size, settings.batch_size)
            with tempfile.TemporaryDirectory() as folder:
                source = _synthetic_source(Path(folder) / "images", data, 2 * images, scale)
                seconds = _seconds_per_step(settings, images, source, Path(folder) / "run")
            if seconds > _QUICK_STEP:
                break
    finally:
        console().quiet = was_quiet
    return seconds / images


def _seconds_per_step(settings: PretrainConfig, images: int, data: str, out: Path) -> float:
    """Return the median over two epochs of two steps, without the first step, which is slow."""
    from wcl.apps import pretrain

    timed = dataclasses.replace(
        settings,
        data=data,
        out=str(out),
        epochs=2,
        batch_size=images,
        micro_batch_size=0,
        classes=0,
        limit=2 * images,
        loss=type(settings.loss)(),  # its defaults fit any number of images
        log=LogConfig(every=1, health=0, tensorboard=False),
    )
    if not pretrain.run(timed, quiet=True):  # stopped, and with it the listing
        raise KeyboardInterrupt
    lines = read_metrics(RunFolder(out).metrics)
    steps = [line for line in lines if line["kind"] == "step"]
    seconds: list[float] = [images / step["images_per_second"] for step in steps[1:]]
    return statistics.median(seconds)


def _synthetic_source(folder: Path, data: str, count: int, scale: str) -> str:
    """Write images like those of a data set, and return their folder."""
    if data == "digits":
        return data
    write = write_photos if data == "imagenet" and scale != "smoke" else write_noise
    for name in ("a", "b"):  # classes, for systems that learn from labels
        (folder / name).mkdir(parents=True)
        write(folder / name, count // 2)
    return str(folder)
