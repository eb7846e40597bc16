"""`wcl reproduce`: from a name and a scale to a filled table."""

import json
from typing import Any

from wcl.config import ReproduceConfig
from wcl.paper import sources, synthetic
from wcl.paper.cells import ResultStore, open_result_store
from wcl.paper.listing import listing, seconds_left, show_listing
from wcl.paper.purity_picture import write_gains
from wcl.paper.scales import SCALES, at_scale
from wcl.paper.show import fill, show, write
from wcl.paper.tables import Table, only
from wcl.system.errors import InputError, RunError
from wcl.system.paths import expanded
from wcl.system.progress import console

_MOST_SEEDS = 1000


def reproduce(name: str, config: ReproduceConfig, as_json: bool, wants_list: bool) -> bool:
    """Make the cells of a table and show it; whether it came to its end, or was stopped.

    Args:
        name: of the table.
        config: the options.
        as_json: whether to print one JSON object instead.
        wants_list: whether to list the cells instead of making them.

    Raises:
        InputError: the table has no such scale, data are missing, or `--out` is something else.
        RunError: a cell could not be made. The others are, and the table is written all the same.
    """
    table = at_scale(name, config.scale)
    cells = only(table, config.only)
    names = sources.needed(cells)
    if not 0 <= config.seeds <= _MOST_SEEDS:
        raise InputError(f"--seeds: must be between 0 and {_MOST_SEEDS:,}, not {config.seeds}")
    seeds = range(config.seeds or SCALES[config.scale].seeds)
    smoke = config.scale == "smoke"
    if smoke and config.data:
        raise InputError("--data: the scale smoke makes its own images; leave it out")
    folder = expanded(config.out)
    made_up = folder / "data"
    every_name = sources.needed(table.cells)
    if smoke:
        places = synthetic.smoke_sources(every_name, made_up)
    else:
        places = sources.given(names, config.data, every_name)
    if wants_list:
        missing = {missing: "" for missing in names if missing not in places}
        lines = listing(ResultStore(folder, config, missing | places), cells, seeds)
        if as_json:
            left = seconds_left(lines)
            about = {"table": name, "scale": config.scale, "seeds": len(seeds)}
            print(json.dumps({**about, "cells": lines, "estimated_seconds_left": left}))
        else:
            show_listing(lines, sources.MADE_UP if smoke else sources.where(names), seeds)
        return True
    if not smoke:
        sources.check(names, places)
    result_store = ResultStore(open_result_store(config), config, places)
    if smoke:
        synthetic.write_smoke_data(made_up)

    failed: dict[str, str] = {}
    finished = True
    every = [(cell, seed) for seed in seeds for cell in cells]
    todo = [(cell, seed) for cell, seed in every if result_store.found(cell, seed) is None]
    for number, (cell, seed) in enumerate(todo, start=len(every) - len(todo) + 1):
        figures = ", ".join(figure.column for figure in cell.figures)
        which = f"{cell.row}: {figures}; seed {seed}"
        console().print(f"cell {number} of {len(every)}: {which}", markup=False, soft_wrap=True)
        try:
            finished = result_store.make(cell, seed)
        except RunError as error:
            failed[which] = str(error)
            console().print(f"failed: {error}", markup=False, soft_wrap=True)
        if not finished:
            break
        write(
            _filled(table, result_store, seeds, failed), result_store.folder
        )  # to be looked at meanwhile
        write_gains(result_store)

    found = _filled(table, result_store, seeds, failed)
    path, picture = write(found, result_store.folder), write_gains(result_store)
    if as_json:
        print(json.dumps(found))
    else:
        show(found)
    where = f"the table is in {path} too"
    if picture is not None:
        where += f", gains by the purity of weak labels in {picture}"
    if not finished:
        where += "; it is not complete: the same command goes on"
    console().print(where, markup=False, soft_wrap=True)
    if failed:
        raise RunError(f"{len(failed)} of {len(every)} cells could not be made; {path} says why")
    return finished


def _filled(
    table: Table, result_store: ResultStore, seeds: range, failed: dict[str, str]
) -> dict[str, Any]:
    """The table of what was asked for, and of all else that is there by now."""
    asked = only(table, result_store.config.only)
    cells = [
        cell
        for cell in table.cells
        if cell in asked or any(result_store.found(cell, seed) is not None for seed in seeds)
    ]
    return {
        "table": table.name,
        "scale": result_store.config.scale,
        "title": table.title,
        "about": SCALES[result_store.config.scale].about,
        "unit": table.unit,
        "lines": fill(table, cells, result_store.found, seeds),
        "notes": list(table.notes),
        "failed": failed,
    }
