"""`wcl reproduce`: make the cells of a table, and show it."""

import json
from pathlib import Path
from typing import Any

from wcl.config import ReproduceConfig
from wcl.paper import sources, synthetic
from wcl.paper.label_lists import TABLE, check_lists, label_lists, labels_note
from wcl.paper.listing import listing, show_listing
from wcl.paper.other_rows import with_other_rows
from wcl.paper.purity import points_of
from wcl.paper.result_store import ResultStore, open_result_store
from wcl.paper.scales import SCALES, at_scale
from wcl.paper.show import fill, show, write
from wcl.paper.tables import Cell, Table, only
from wcl.system.errors import InputError, RunError
from wcl.system.paths import expanded
from wcl.system.progress import log


def reproduce(name: str, config: ReproduceConfig, as_json: bool, wants_list: bool) -> bool:
    """Make the cells of a table and show it.

    Args:
        name: of the table.
        config: the options.
        as_json: print one JSON object instead of a table.
        wants_list: list the cells instead of making them.

    Returns:
        False if it was stopped before all cells were done.

    Raises:
        InputError: the table has no such scale, data are missing, or `--out` holds other files.
        RunError: a cell failed. The others are done, and the table is written all the same.
    """
    table = at_scale(name, config.scale)
    cells = only(table, config.only)
    first = table.first_seed
    seeds = range(first, first + (config.seeds or table.seeds or SCALES[config.scale].seeds))
    lists = label_lists(config.labels, name)
    store = ResultStore(expanded(config.out), config, _sources_of(table, cells, config), lists)
    if wants_list:
        found = listing(store, name, cells, seeds)
        if as_json:
            print(json.dumps(found))
        else:
            show_listing(found)
        return True
    if config.scale != "smoke":
        sources.check(sources.needed(cells), store.sources)
        check_lists(lists, store.sources[cells[0].run.data])
    open_result_store(config)
    if config.scale == "smoke":
        synthetic.write_smoke_data(store.folder / "data")
    failed: dict[str, str] = {}
    finished = _make(store, table, cells, seeds, failed)
    path, filled = _write(store, table, seeds, failed)
    if as_json:
        print(json.dumps(filled))
    else:
        show(filled)
    log(f"table written to {path}")
    if not finished:
        log("stopped before all cells were done; run the same command to continue")
    if failed:
        total = len(cells) * len(seeds)
        raise RunError(f"{len(failed)} of {total} cells failed; {path} lists the reasons")
    return finished


def _sources_of(table: Table, cells: tuple[Cell, ...], config: ReproduceConfig) -> dict[str, str]:
    """Return the source of each data set of a table, as far as it is known."""
    every_name = sources.needed(table.cells)
    if config.scale != "smoke":
        return sources.given(sources.needed(cells), config.data, every_name)
    if config.data:
        raise InputError("--data: the scale smoke makes its own images; leave it out")
    return synthetic.smoke_sources(every_name, expanded(config.out) / "data")


def _make(
    store: ResultStore,
    table: Table,
    cells: tuple[Cell, ...],
    seeds: range,
    failed: dict[str, str],
) -> bool:
    """Make the cells that are not done, and write the table after each.

    Failures are added to `failed`. Returns False if it was stopped.
    """
    jobs = [(cell, seed) for seed in seeds for cell in cells]
    todo = [job for job in jobs if store.figures(*job) is None]
    for number, (cell, seed) in enumerate(todo, start=len(jobs) - len(todo) + 1):
        label = f"{cell.row}: {', '.join(cell.columns)}; seed {seed}"
        log(f"cell {number} of {len(jobs)}: {label}")
        try:
            if not store.make(cell, seed):
                return False
        except RunError as error:
            failed[label] = str(error)
            log(f"failed: {error}")
        _write(store, table, seeds, failed)
    return True


def _write(
    store: ResultStore, table: Table, seeds: range, failed: dict[str, str]
) -> tuple[Path, dict[str, Any]]:
    """Write the table of the requested cells and of all others that are done."""
    requested = only(table, store.config.only)
    cells = [
        cell
        for cell in table.cells
        if cell in requested or any(store.figures(cell, seed) is not None for seed in seeds)
    ]
    filled = {
        "table": table.name,
        "scale": store.config.scale,
        "title": table.title,
        "about": table.about or SCALES[store.config.scale].about,
        "unit": table.unit,
        "wide": table.wide,
        "lines": with_other_rows(
            table, fill(table, cells, store.figures, seeds), store.config.only
        ),
        "notes": [*table.notes, *([labels_note(store.lists)] if table.name == TABLE else [])],
        "failed": failed,
        "points": [point._asdict() for point in points_of(table, store, seeds)],
    }
    return write(filled, store.folder), filled
