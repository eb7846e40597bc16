"""The filled table: in the terminal, as Markdown and as JSON."""

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Printed

from wcl.paper.tables import Cell, Figure, Table
from wcl.system.files import atomic_write

Found = Callable[[Cell, int], dict[str, float] | None]
"""The figures of a cell with a seed, by their names; None if it is not done."""

_COLUMNS = {
    "row": "",
    "column": "figure",
    "paper": "paper",
    "ours": "ours",
    "difference": "difference",
    "paper_gain": "paper's gain",
    "gain": "our gain",
    "against": "over",
    "seeds": "seeds",
}


def fill(table: Table, cells: Iterable[Cell], found: Found, seeds: range) -> list[dict[str, Any]]:
    """One line for every figure: the paper's, ours, their difference, and the gains of both.

    Ours are means over the seeds with standard deviations. A gain is over the figure of the row
    that a cell stands against, seed by seed; None is for what there is not (yet).
    """
    figures = [(cell, figure) for cell in cells for figure in cell.figures]
    values = {
        (cell.row, figure.column): _by_seed(cell, figure, found, seeds) for cell, figure in figures
    }
    papers = {(cell.row, figure.column): figure.paper for cell, figure in figures}
    lines = []
    for cell, figure in figures:
        own, beside = (cell.row, figure.column), (cell.against, figure.column)
        base = values.get(beside, {})
        shared = values[own].keys() & base.keys()
        ours = list(values[own].values())
        if table.relative:
            ours = [values[own][seed] / base[seed] for seed in sorted(shared)]
        line: dict[str, Any] = {"row": cell.row, "column": figure.column, "paper": figure.paper}
        line |= {"ours": _mean(ours), "ours_deviation": _deviation(ours), "seeds": len(ours)}
        comparable = figure.same_measure and figure.paper is not None and ours
        line["difference"] = line["ours"] - figure.paper if comparable else None
        gains: list[float] = []
        paper_gain = None
        if cell.against != cell.row and not table.relative:
            gains = [values[own][seed] - base[seed] for seed in sorted(shared)]
            papers_base = papers.get(beside)
            if figure.paper is not None and papers_base is not None:
                paper_gain = figure.paper - papers_base
        line |= {"against": cell.against or None, "paper_gain": paper_gain}
        line |= {"gain": _mean(gains), "gain_deviation": _deviation(gains)}
        lines.append(line)
    return lines


def _by_seed(cell: Cell, figure: Figure, found: Found, seeds: range) -> dict[int, float]:
    results = {seed: found(cell, seed) for seed in seeds}
    return {
        seed: result[figure.key]
        for seed, result in results.items()
        if result is not None and figure.key in result
    }


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def write(found: dict[str, Any], folder: Path) -> Path:
    """Write a filled table, as Markdown and as JSON, over the one before; where the former is."""
    path = folder / f"{found['table']}-{found['scale']}.md"
    texts = {path: markdown(found), path.with_suffix(".json"): json.dumps(found, indent=1) + "\n"}
    for file, text in texts.items():
        with atomic_write(file) as unfinished:
            unfinished.write_text(text)
    return path


def markdown(found: dict[str, Any]) -> str:
    """A filled table as Markdown, with what it is and what to know of it."""
    names, rows = _texts(found)
    lines = [names, ["---"] * len(names), *rows]
    text = [found["title"], "", f"Scale {found['scale']}: {found['about']}.", ""]
    text += [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*text, "", *_explained(found)]) + "\n"


def show(found: dict[str, Any]) -> None:
    """Print a filled table."""
    names, rows = _texts(found)
    table = Printed(title=escape(found["title"]))
    for number, name in enumerate(names):
        table.add_column(name, justify="left" if number == 0 else "right")
    before = ""
    for name, *values in rows:
        table.add_row(*map(escape, ["" if name == before else name, *values]))
        before = name
    Console().print(table)
    for line in _explained(found):
        print(line)


def _explained(found: dict[str, Any]) -> list[str]:
    lines = found["lines"]
    unit = f" ({found['unit']})" if found["unit"] else ""
    of_what = _constant(lines, "column") or "The figures"
    count = _constant(lines, "seeds")
    over = f"{count} seeds" if count else "the seeds"
    said = "of one seed" if count == 1 else f"mean over {over} ± standard deviation"
    words = [f"{of_what}{unit}: {said}."]
    if len(others := _compared_with(lines)) == 1:
        words.append(f"Gains are over {others.pop()}.")
    words += [f"{row} failed: {why}" for row, why in found["failed"].items()]
    return [*words, *found["notes"]]


def _compared_with(lines: list[dict[str, Any]]) -> set[str]:
    """The rows that gains are over."""
    gains = ("gain", "paper_gain")
    return {line["against"] for line in lines if any(line[name] is not None for name in gains)}


def _constant(lines: list[dict[str, Any]], name: str) -> Any:
    """What all lines have in common there, or None."""
    values = {line[name] for line in lines}
    return values.pop() if len(values) == 1 else None


def _texts(found: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Names of the columns that tell anything, and the lines in words."""
    lines, decimals = found["lines"], 2 if found["unit"] else 3
    empty = [name for name in _COLUMNS if all(line[name] is None for line in lines)]
    told_below = [name for name in ("column", "seeds") if _constant(lines, name) is not None]
    if len(_compared_with(lines)) < 2:
        told_below.append("against")
    wanted = [n for n in _COLUMNS if n == "ours" or n not in (*empty, *told_below)]

    def text(line: dict[str, Any], name: str) -> str:
        value = line[name]
        if value is None or (name == "against" and value == line["row"]):
            return "–"
        if not isinstance(value, float):
            return str(value)
        signed = name in ("difference", "paper_gain", "gain")
        words = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
        spread = line.get(f"{name}_deviation")
        return words if spread is None else f"{words} ± {spread:.{decimals}f}"

    return [_COLUMNS[n] for n in wanted], [[text(line, n) for n in wanted] for line in lines]
