"""The rows of the paper's tables that are printed but not made: published figures only."""

from collections.abc import Sequence
from typing import Any

from wcl.paper.published import published
from wcl.paper.tables import Cell, PublishedFigure, Table, matches


def other_figures(sources: Sequence[str], cells: Sequence[Cell]) -> tuple[PublishedFigure, ...]:
    """Return the figures of the rows without a cell, for the columns that cells have.

    Args:
        sources: tables of the paper; a row that several have is taken from the first.
        cells: the cells of our table.
    """
    rows = {cell.row for cell in cells}
    columns = {column for cell in cells for column in cell.columns}
    found: dict[tuple[str, str], PublishedFigure] = {}
    for source in sources:
        names = published(source).get("columns", [])
        for row, values in published(source).get("rows", {}).items():
            for column, value in zip(names, values, strict=True):
                if row not in rows and column in columns and value is not None:
                    found.setdefault((row, column), PublishedFigure(row, column, value))
    return tuple(found.values())


def row_order(sources: Sequence[str], cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return all rows: those of the cells in their order, the others where the paper has them."""
    order = list(dict.fromkeys(cell.row for cell in cells))
    own = set(order)
    for source in sources:
        rows = list(published(source).get("rows", {}))
        place = next((order.index(row) for row in rows if row in own), len(order))
        for row in rows:
            if row in own:
                place = order.index(row) + 1
                while place < len(order) and order[place] in own - set(rows):
                    place += 1  # rows that only we have stay behind the one they belong to
            elif row not in order:
                order.insert(place, row)
                place += 1
    return tuple(order)


def with_other_rows(
    table: Table, lines: Sequence[dict[str, Any]], text: str
) -> list[dict[str, Any]]:
    """Return the lines of a table and those of published figures, in the order of the paper.

    Args:
        table: the table.
        lines: its lines, as `fill` returns them.
        text: the option `only`, which the row or column of a published figure must match as well.
    """
    missing = dict.fromkeys(lines[0])
    others = [
        missing | {"row": figure.row, "column": figure.column, "paper": figure.paper}
        for figure in table.published
        if matches(text, figure.row, (figure.column,))
    ]
    every = [line | {"published_only": False} for line in lines]
    every += [line | {"published_only": True} for line in others]
    if not others:
        return every
    return sorted(every, key=lambda line: table.rows.index(line["row"]))
