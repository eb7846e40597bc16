"""Command line of the benchmarks: `python -m benchmarks NAME [--json]`."""

import argparse
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Benchmark(NamedTuple):
    """A module of this folder, with a function `measure(rounds)`.

    It may also have `draw(figures, folder)` to write plots, `table(figures)`, and
    `add_arguments(parser)` for arguments of its own, which `measure` receives by name.
    """

    rounds: int
    about: str


BENCHMARKS = {
    "startup": Benchmark(5, "start of commands, as multiples of importing torch"),
    "augment": Benchmark(15, "augmentation against torchvision's and kornia's"),
    "labels": Benchmark(15, "weak labels against a matrix product, and against SciPy"),
    "step": Benchmark(5, "a WCL step against a SimCLR step, and the cost of loading images"),
    "maps": Benchmark(9, "convolutions of small maps as matrix products"),
    "arithmetic": Benchmark(5, "networks against the arithmetic limit of the CPU, and bfloat16"),
    "crops": Benchmark(5, "a WCL step with small crops against a SimCLR step"),
    "knn": Benchmark(9, "exact and approximate neighbor search against faiss"),
    "eval": Benchmark(3, "the fast linear probe against the paper's"),
    "photos": Benchmark(9, "decoding photos and cutting views with PIL and with alternatives"),
    "peers": Benchmark(5, "training, embedding and augmentation against lightly, and a race"),
    "scale": Benchmark(5, "memory, time and communication of large batches"),
    "growth": Benchmark(3, "time and memory by batch, image size, images and processes"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run one benchmark and print its figures, or list the benchmarks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure speed as ratios of alternatives timed in turn in one run.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,  # until the arguments of the benchmark are known
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=_positive, help="timings of each alternative")
    parser.add_argument("--threads", type=_positive, help="CPU threads; by default torch decides")
    common = vars(parser.parse_known_args(arguments)[0])
    parser.add_argument("-h", "--help", action="help", help="show this message and exit")
    name = common["name"]
    module: Any = import_module(f"benchmarks.{name}") if name else None
    draw = getattr(module, "draw", None)
    if draw:
        parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write plots")
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    given = vars(parser.parse_args(arguments))
    if module is None:
        print(_listing())
        return
    from wcl.system import machine
    from wcl.system.errors import InputError, RunError

    machine.keep_freed_memory()  # as a training process does
    machine.use_threads(given["threads"] or 0)
    own = {key: value for key, value in given.items() if key not in common}
    folder = own.pop("out") if draw else None
    try:
        figures = module.measure(given["rounds"] or BENCHMARKS[name].rounds, **own)
    except (InputError, RunError) as error:
        sys.exit(f"benchmarks: {error}")
    if draw and folder:
        draw(figures, folder)
    if given["json"]:
        print(json.dumps({"bench": name, **figures}))
        return
    Console().print(getattr(module, "table", _table)(figures))


def _table(figures: Mapping[str, float | None]) -> Table:
    table = Table(show_header=False)
    for key, value in figures.items():
        table.add_row(key, "not measured" if value is None else f"{value:.3g}")
    return table


def _listing() -> str:
    lines = [f"  {name:<10} {benchmark.about}" for name, benchmark in BENCHMARKS.items()]
    return "\n".join(["benchmarks:", *lines])


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


if __name__ == "__main__":
    main()
