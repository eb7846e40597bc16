"""`wcl bench NAME`: speed as ratios of things timed side by side in one run."""

import json
from importlib import import_module

from rich.console import Console
from rich.table import Table

from wcl.config import BenchConfig
from wcl.system import machine
from wcl.system.errors import InputError

# The benchmarks, and how often each times its things; the function is called like its module.
ROUNDS = {"augment": 15, "labels": 15, "step": 5, "crops": 5, "knn": 9, "eval": 3, "scale": 5}


def bench(name: str, config: BenchConfig, as_json: bool) -> None:
    """Run one benchmark and print its figures."""
    if config.rounds < 0:
        raise InputError(f"--rounds: must be at least 0, not {config.rounds}")
    machine.keep_freed_memory()  # as a training process does
    machine.use_threads(config.threads)
    measure = getattr(import_module(f"wcl.bench.{name}"), name)
    found: dict[str, float | None] = measure(config.rounds or ROUNDS[name])
    if as_json:
        print(json.dumps({"bench": name, **found}))
        return
    table = Table(show_header=False)
    for key, value in found.items():
        table.add_row(key, "not installed" if value is None else f"{value:.3g}")
    Console().print(table)
