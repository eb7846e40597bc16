"""A table with our figures beside the paper's: in the terminal, as Markdown and as JSON."""

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from wcl.paper.tables import Cell, Figure, Table
from wcl.system.files import atomic_write

Results = Callable[[Cell, int], dict[str, float] | None]
"""The figures of a cell with a seed, by their keys; None if it is not done."""

_WIDE = 160
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
_PUBLISHED = "†"  # marks rows of published figures


def fill(
    table: Table, cells: Iterable[Cell], results: Results, seeds: range
) -> list[dict[str, Any]]:
    """Return a line for every figure: the paper's, ours, their difference, and both gains.

    Ours are means over the seeds with standard deviations. A gain is over the baseline's figure
    with the same seed. What does not exist (yet) is None.
    """
    figures = [(cell, figure) for cell in cells for figure in cell.figures]
    values = {
        (cell.row, figure.column): _by_seed(cell, figure, results, seeds)
        for cell, figure in figures
    }
    papers = {(cell.row, figure.column): figure.paper for cell, figure in figures}
    lines = []
    for cell, figure in figures:
        own = values[cell.row, figure.column]
        base = values.get((cell.baseline, figure.column), {})
        pairs = [(own[seed], base[seed]) for seed in sorted(own.keys() & base.keys())]
        ours = [value / other for value, other in pairs] if table.relative else [*own.values()]
        mean, difference = _mean(ours), None
        if figure.comparable and figure.paper is not None and mean is not None:
            difference = mean - figure.paper
        gains: list[float] = []
        paper_gain = None
        if cell.baseline != cell.row and not table.relative:
            gains = [value - other for value, other in pairs]
            paper_base = papers.get((cell.baseline, figure.column))
            if figure.paper is not None and paper_base is not None:
                paper_gain = figure.paper - paper_base
        lines.append(
            {
                "row": cell.row,
                "column": figure.column,
                "unit": figure.unit,
                "paper": figure.paper,
                "ours": mean,
                "ours_deviation": _deviation(ours),
                "seeds": len(ours),
                "difference": difference,
                "against": cell.baseline or None,
                "paper_gain": paper_gain,
                "gain": _mean(gains),
                "gain_deviation": _deviation(gains),
            }
        )
    return lines


def _by_seed(cell: Cell, figure: Figure, results: Results, seeds: range) -> dict[int, float]:
    found = {seed: results(cell, seed) or {} for seed in seeds}
    return {seed: result[figure.key] for seed, result in found.items() if figure.key in result}


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def write(filled: dict[str, Any], folder: Path) -> Path:
    """Write a filled table as Markdown and as JSON, and return the path of the Markdown."""
    path = folder / f"{filled['table']}-{filled['scale']}.md"
    texts = {path: markdown(filled), path.with_suffix(".json"): json.dumps(filled, indent=1) + "\n"}
    for file, text in texts.items():
        with atomic_write(file) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return path


def markdown(filled: dict[str, Any]) -> str:
    """Return a filled table as Markdown, with its title and notes."""
    header, rows = _texts(filled)
    lines = [header, ["---"] * len(header), *rows]
    text = [filled["title"], "", f"Scale {filled['scale']}: {filled['about']}.", ""]
    text += [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*text, "", *_notes(filled)]) + "\n"


def show(filled: dict[str, Any]) -> None:
    """Print a filled table."""
    header, rows = _texts(filled)
    table = RichTable(title=escape(filled["title"]))
    for number, name in enumerate(header):
        is_name = number == 0
        justify: Literal["left", "right"] = "left" if is_name else "right"
        table.add_column(name, justify=justify, no_wrap=is_name and filled["wide"])
    previous = ""
    for name, *values in rows:
        table.add_row(*map(escape, ["" if name == previous else name, *values]))
        previous = name
    console = Console()
    if filled["wide"]:  # lines that wrap are easier to read than cells that do
        console.width = max(console.width, _WIDE)
    console.print(table)
    for line in _notes(filled):
        print(line)


def _notes(filled: dict[str, Any]) -> list[str]:
    """Return the lines below a table: what its figures are, failed cells, notes."""
    lines = filled["lines"]
    is_one_unit = not filled["wide"] or _constant([line for line in lines if line["unit"]], "unit")
    unit = f" ({filled['unit']})" if filled["unit"] and is_one_unit else ""
    figure = _constant(lines, "column") or "Figures"
    count = _constant([line for line in lines if line["seeds"]], "seeds")
    seeds = f"{count} seeds" if count else "the seeds"
    spread = "one seed" if count == 1 else f"mean over {seeds} ± standard deviation"
    notes = [f"{figure}{unit}: {spread}."]
    baselines = _baselines(lines)
    if filled["wide"] and baselines:
        notes.append(f"In parentheses: gains over {'; '.join(baselines)}.")
    elif len(baselines) == 1:
        notes.append(f"Gains are over {baselines[0]}.")
    if filled["wide"] and any(line["paper"] is not None for line in lines):
        notes.append(f"{_PUBLISHED} published figures.")
    elif any(line["published_only"] for line in lines):
        notes.append(f"{_PUBLISHED} published figures; nothing is trained for these rows.")
    notes += [f"{row} failed: {why}" for row, why in filled["failed"].items()]
    return [*notes, *filled["notes"]]


def _baselines(lines: list[dict[str, Any]]) -> list[str]:
    """Return the rows that gains are over."""
    gains = ("gain", "paper_gain")
    compared = (line for line in lines if any(line[name] is not None for name in gains))
    return list(dict.fromkeys(line["against"] for line in compared))


def _constant(lines: list[dict[str, Any]], name: str) -> Any:
    """Return the value that all lines share, or None."""
    values = {line[name] for line in lines}
    return values.pop() if len(values) == 1 else None


def _texts(filled: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table, without columns that say nothing."""
    if filled["wide"]:
        return _wide_texts(filled["lines"])
    lines, decimals = filled["lines"], 2 if filled["unit"] else 3
    omitted = {name for name in _COLUMNS if all(line[name] is None for line in lines)}
    own = [line for line in lines if not line["published_only"]]
    omitted |= {"column"} if _constant(lines, "column") is not None else set()
    omitted |= {"seeds"} if _constant(own, "seeds") is not None else set()
    if len(_baselines(lines)) < 2:
        omitted.add("against")
    names = [name for name in _COLUMNS if name not in omitted - {"ours"}]

    def text(line: dict[str, Any], name: str) -> str:
        value = line[name]
        if value is None or (name == "against" and value == line["row"]):
            return "–"
        if name == "row" and line["published_only"]:
            return f"{value} {_PUBLISHED}"
        if not isinstance(value, float):
            return str(value)
        sign = "+" if name in ("difference", "paper_gain", "gain") else ""
        deviation = line.get(f"{name}_deviation")
        spread = "" if deviation is None else f" ± {deviation:.{decimals}f}"
        return f"{value:{sign}.{decimals}f}{spread}"

    return [_COLUMNS[n] for n in names], [[text(line, n) for n in names] for line in lines]


def _wide_texts(lines: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table that has a column for each figure.

    The paper's figures have a row of their own, above ours. Gains are in parentheses.
    """
    columns = list(dict.fromkeys(line["column"] for line in lines))
    has_paper = any(line["paper"] is not None for line in lines)
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        decimals = 1 if line["unit"] == "%" and not has_paper else 2

        def text(name: str, gain: str, line: Any = line, decimals: int = decimals) -> str:
            if line[name] is None:
                return "–"
            deviation, value = line.get(f"{name}_deviation"), f"{line[name]:.{decimals}f}"
            spread = f" ± {deviation:.{decimals}f}" if deviation else ""
            return value + spread + ("" if line[gain] is None else f" ({line[gain]:+.{decimals}f})")

        if line["paper"] is not None:
            row = found.setdefault(f"{line['row']} {_PUBLISHED}", {})
            row[line["column"]] = text("paper", "paper_gain")
        if not line["published_only"]:
            found.setdefault(line["row"], {})[line["column"]] = text("ours", "gain")
    rows = [[row, *(texts.get(name, "–") for name in columns)] for row, texts in found.items()]
    return ["", *columns], rows
