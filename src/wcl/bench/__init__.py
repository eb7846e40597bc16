"""`wcl bench NAME`: speed as ratios of things timed side by side in one run."""

import json

from rich.console import Console
from rich.table import Table

from wcl import machine
from wcl.config import BenchConfig
from wcl.errors import InputError


def bench(name: str, config: BenchConfig, as_json: bool) -> None:
    """Run one benchmark and print its figures."""
    if config.rounds < 0:
        raise InputError(f"--rounds: must be at least 0, not {config.rounds}")
    machine.keep_freed_memory()  # as a training process does
    machine.use_threads(config.threads)
    found: dict[str, float] | dict[str, float | None]
    if name == "augment":
        from wcl.bench.augment import augment

        found = augment(config.rounds or 15)
    elif name == "labels":
        from wcl.bench.labels import labels

        found = labels(config.rounds or 15)
    else:
        from wcl.bench.step import step

        found = step(config.rounds or 5)
    if as_json:
        print(json.dumps({"bench": name, **found}))
        return
    table = Table(show_header=False)
    for key, value in found.items():
        table.add_row(key, "not installed" if value is None else f"{value:.3g}")
    Console().print(table)
