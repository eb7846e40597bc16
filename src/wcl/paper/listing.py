"""`wcl reproduce NAME --list`: the cells, what they need, and how long they might take here."""

import dataclasses
import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Printed

from wcl.config import LogConfig, PretrainConfig
from wcl.paper.cells import ResultStore, settings_of
from wcl.paper.sources import needed
from wcl.paper.synthetic import write_noise, write_photos
from wcl.paper.tables import Cell, Run
from wcl.system.progress import console, track
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import read_metrics

_IMAGES = {"digits": 1_297, "cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}
_CLASSES = 1_000  # of ImageNet
_IN_A_STEP = (8, 256)  # images: the second, if a step of the first takes less than this
_QUICK = 1.0


def listing(
    result_store: ResultStore, cells: tuple[Cell, ...], seeds: range
) -> list[dict[str, Any]]:
    """A line for each cell: its figures, its data, how many of its runs are done, and the seconds
    of pretraining for one that is not, estimated from a few steps on made-up images."""
    known: dict[str, float] = {}
    lines = []
    for cell in track(cells, "timing a few steps"):
        settings = settings_of(cell.run, 0, "", result_store.config)
        key = repr((settings.method, settings.model, settings.image_size, settings.crops.count))
        if key not in known:
            known[key] = _seconds_per_image(settings, cell.run.data, result_store.config.scale)
        images = images_of(settings, cell.run.data, result_store.config.scale)
        lines.append(
            {
                "row": cell.row,
                "figures": [figure.column for figure in cell.figures],
                "measure": cell.measure.protocol,
                "data": needed((cell,)),
                "runs": [_name(result_store, cell.run, seed) for seed in seeds],
                "done": sum(result_store.found(cell, seed) is not None for seed in seeds),
                "seconds": known[key] * images * settings.epochs,
            }
        )
    return lines


def _name(result_store: ResultStore, run: Run, seed: int) -> str:
    return result_store.run_folder(run, seed).name


def seconds_left(lines: list[dict[str, Any]]) -> float:
    """Seconds of all runs of cells that are not done; a run that cells share counts once."""
    open_runs = {
        run: line["seconds"]
        for line in lines
        for run in line["runs"][line["done"] :]  # seeds are made in their order
    }
    return float(sum(open_runs.values()))


def images_of(settings: PretrainConfig, data: str, scale: str) -> int:
    """Images that a run passes over in an epoch, by what is published of its data set."""
    if scale == "smoke" and data != "digits":
        return 32
    images = _IMAGES[data]
    if settings.classes:
        images = images * settings.classes // _CLASSES
    return min(images, settings.limit) if settings.limit else images


def show_listing(lines: list[dict[str, Any]], about_data: str, seeds: range) -> None:
    """Print the cells, what is to be said of the data sets, and the time."""
    table = Printed("row", "figures", "data", "done", "pretraining")
    for line in lines:
        figures = line["figures"]
        shown = figures[0] if len(figures) == 1 else f"{figures[0]} … {figures[-1]}"
        done = f"{line['done']} of {len(seeds)}"
        words = (line["row"], shown, ", ".join(line["data"]), done)
        table.add_row(*map(escape, (*words, in_words(line["seconds"]))))
    Console().print(table)
    print(about_data)
    print(
        f"estimated from a few steps on this machine, as busy as it is now: "
        f"{in_words(seconds_left(lines))} of pretraining for all that is not done; the evaluations "
        "come on top"
    )


def in_words(seconds: float) -> str:
    """A time, roughly.

    >>> in_words(40), in_words(4000), in_words(40_000), in_words(4_000_000)
    ('40 s', '67 min', '11 h', '46 days')
    """
    for unit, size, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72)):
        if seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def _seconds_per_image(settings: PretrainConfig, data: str, scale: str) -> float:
    """From a few steps of a run with these settings; as many images in each as is quickly done."""
    spoken = console().quiet
    console().quiet = True
    try:
        for count in _IN_A_STEP:
            images = min(count, settings.batch_size)
            with tempfile.TemporaryDirectory() as place:
                out = Path(place) / "run"
                made_up = _made_up(Path(place) / "images", data, 2 * images, scale)
                seconds = _seconds_of_a_step(settings, images, made_up, out)
            if seconds > _QUICK:
                break
    finally:
        console().quiet = spoken
    return seconds / images


def _seconds_of_a_step(settings: PretrainConfig, images: int, data: str, out: Path) -> float:
    """The median over two epochs of two steps; the first one, which is slow, is left out."""
    from wcl.training import loop as train

    timed = dataclasses.replace(
        settings,
        data=data,
        out=str(out),
        epochs=2,
        batch_size=images,
        micro_batch_size=0,
        classes=0,
        limit=2 * images,
        log=LogConfig(every=1, health=0, tensorboard=False),
    )
    if not train.run(timed):  # stopped, and with it the listing
        raise KeyboardInterrupt
    lines = read_metrics(RunFolder(out).metrics)
    steps = [line for line in lines if line["kind"] == "step"]
    seconds: list[float] = [images / step["images_per_second"] for step in steps[1:]]
    return statistics.median(seconds)


def _made_up(folder: Path, data: str, count: int, scale: str) -> str:
    """Images such as the data set has, as many as are needed."""
    if data == "digits":
        return data
    folder.mkdir()
    write = write_photos if data == "imagenet" and scale != "smoke" else write_noise
    write(folder, count)
    return str(folder)
