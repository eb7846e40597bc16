"""Command line of the benchmarks: `python -m benchmarks NAME [--json]`."""

import argparse
import json
from importlib import import_module
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Benchmark(NamedTuple):
    """A module of this folder, with a function `measure(rounds)`."""

    rounds: int
    about: str


BENCHMARKS = {
    "augment": Benchmark(15, "augmentation against torchvision's and kornia's"),
    "labels": Benchmark(15, "weak labels against a matrix product, and against SciPy"),
    "step": Benchmark(5, "a WCL step against a SimCLR step, and the cost of loading images"),
    "maps": Benchmark(9, "convolutions of small maps as matrix products"),
    "arithmetic": Benchmark(5, "networks against the arithmetic limit of the CPU, and bfloat16"),
    "crops": Benchmark(5, "a WCL step with small crops against a SimCLR step"),
    "knn": Benchmark(9, "exact and approximate neighbor search against faiss"),
    "eval": Benchmark(3, "the fast linear probe against the paper's"),
    "peers": Benchmark(5, "training, embedding and augmentation against lightly"),
    "scale": Benchmark(5, "memory, time and communication of large batches"),
}


def main(arguments: list[str] | None = None) -> None:
    """Run one benchmark and print its figures, or list the benchmarks."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure speed as ratios of alternatives timed in turn in one run.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=_positive, help="timings of each alternative")
    parser.add_argument("--threads", type=_positive, help="CPU threads; by default torch decides")
    given = parser.parse_args(arguments)
    if given.name is None:
        print(_listing())
        return
    from wcl.system import machine

    machine.keep_freed_memory()  # as a training process does
    machine.use_threads(given.threads or 0)
    measure = import_module(f"benchmarks.{given.name}").measure
    figures: dict[str, float | None] = measure(given.rounds or BENCHMARKS[given.name].rounds)
    if given.json:
        print(json.dumps({"bench": given.name, **figures}))
        return
    table = Table(show_header=False)
    for key, value in figures.items():
        table.add_row(key, "not installed" if value is None else f"{value:.3g}")
    Console().print(table)


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
