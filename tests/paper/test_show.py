"""Means, deviations, differences and gains, against sums by hand."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from wcl.paper.other_rows import with_other_rows
from wcl.paper.show import fill, markdown, write
from wcl.paper.tables import Cell, Figure, Measure, PublishedFigure, Run, Table

RUN, MEASURE = Run("digits", "digits", 1), Measure("linear")
BASE = Cell("SimCLR", RUN, MEASURE, (Figure("top-1", "top1", 70.0),), "SimCLR")
OURS = Cell("WCL", RUN, MEASURE, (Figure("top-1", "top1", 72.5),), "SimCLR")
TABLE = Table("some", "Table 0: some", (BASE, OURS), notes=("A note.",))
VALUES = {"SimCLR": [60.0, 64.0, 62.0], "WCL": [63.0, 65.0, 67.0]}


def found(cell: Cell, seed: int) -> dict[str, float]:
    return {"top1": VALUES[cell.row][seed]}


def described(table: Table, lines: list[dict[str, object]]) -> dict[str, object]:
    about = {"table": "some", "scale": "cpu", "title": table.title, "about": "small"}
    return {
        **about,
        "unit": "%",
        "wide": table.wide,
        "lines": with_other_rows(table, lines, ""),
        "notes": list(table.notes),
        "failed": {},
    }


def test_a_line_has_the_mean_the_deviation_and_the_gain_seed_by_seed() -> None:
    _, line = fill(TABLE, TABLE.cells, found, range(3))
    assert (line["ours"], line["paper"], line["seeds"]) == (65.0, 72.5, 3)
    assert line["ours_deviation"] == pytest.approx(2.0)  # √((4 + 0 + 4) / 2)
    assert line["difference"] == pytest.approx(-7.5)
    assert line["gain"] == pytest.approx(3.0)  # of 3, 1 and 5
    assert line["gain_deviation"] == pytest.approx(2.0)
    assert line["paper_gain"] == pytest.approx(2.5)


def test_the_baseline_row_has_no_gain() -> None:
    line, _ = fill(TABLE, TABLE.cells, found, range(3))
    assert (line["gain"], line["paper_gain"]) == (None, None)


def test_what_is_not_done_is_left_out_and_one_seed_has_no_deviation() -> None:
    def some(cell: Cell, seed: int) -> dict[str, float] | None:
        return found(cell, seed) if (cell.row, seed) in {("SimCLR", 0), ("WCL", 1)} else None

    base, ours = fill(TABLE, TABLE.cells, some, range(3))
    assert (base["ours"], base["ours_deviation"], base["seeds"]) == (60.0, None, 1)
    assert (ours["ours"], ours["gain"]) == (65.0, None)  # no seed that both have
    nothing = fill(TABLE, TABLE.cells, lambda cell, seed: None, range(3))
    assert [line["ours"] for line in nothing] == [None, None]
    assert "–" in markdown(described(TABLE, nothing))


def test_relative_figures_are_multiples_seed_by_seed() -> None:
    table = dataclasses.replace(TABLE, relative=True)
    base, ours = fill(table, table.cells, found, range(3))
    assert base["ours"] == 1.0
    assert ours["ours"] == pytest.approx((63 / 60 + 65 / 64 + 67 / 62) / 3)
    assert ours["gain"] is None


def test_figures_of_another_measure_have_no_difference() -> None:
    other = dataclasses.replace(OURS, figures=(Figure("top-1", "top1", 72.5, comparable=False),))
    _, line = fill(TABLE, (BASE, other), found, range(3))
    assert line["difference"] is None
    assert line["paper_gain"] == pytest.approx(2.5)


def test_where_gains_are_over_several_rows_each_line_says_over_which() -> None:
    beside = dataclasses.replace(BASE, row="other", baseline="other")
    third = dataclasses.replace(OURS, row="third", baseline="other")
    cells = (BASE, OURS, beside, third)
    lines = fill(TABLE, cells, lambda cell, seed: {"top1": 60.0}, range(1))
    text = markdown(described(TABLE, lines))
    assert "| our gain | over |" in text and "Gains are over" not in text
    over = [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("|")]
    assert over[2:] == ["–", "SimCLR", "–", "other"]


def test_the_table_is_written_as_markdown_and_as_json(tmp_path: Path) -> None:
    lines = fill(TABLE, TABLE.cells, found, range(3))
    path = write(described(TABLE, lines), tmp_path)
    text = path.read_text()
    assert "|  | paper | ours | difference | paper's gain | our gain |" in text
    assert "| WCL | 72.50 | 65.00 ± 2.00 | -7.50 | +2.50 | +3.00 ± 2.00 |" in text
    assert "top-1 (%): mean over 3 seeds ± standard deviation.\nGains are over SimCLR." in text
    assert text.rstrip().endswith("A note.")
    read = json.loads(path.with_suffix(".json").read_text())
    assert math.isclose(read["lines"][1]["gain"], 3.0)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["some-cpu.json", "some-cpu.md"]


def test_published_rows_are_marked_and_stand_where_the_paper_has_them() -> None:
    other = PublishedFigure("LocalAgg", "top-1", 58.8)
    table = dataclasses.replace(TABLE, rows=("SimCLR", "LocalAgg", "WCL"), published=(other,))
    filled = described(table, fill(table, table.cells, found, range(3)))
    text = markdown(filled)
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert [row.split("|")[1].strip() for row in rows] == ["SimCLR", "LocalAgg †", "WCL"]
    assert rows[1] == "| LocalAgg † | 58.80 | – | – | – | – |"
    # What all cells share is still stated once: the figure, the seeds and the baseline.
    assert "top-1 (%): mean over 3 seeds ± standard deviation.\nGains are over SimCLR." in text
    assert "† published figures; nothing is trained for these rows." in text
    lines = filled["lines"]
    assert isinstance(lines, list)
    assert [line["published_only"] for line in lines] == [False, True, False]
    assert "†" not in markdown(described(TABLE, fill(TABLE, TABLE.cells, found, range(3))))


def test_a_wide_table_has_the_paper_s_figures_above_ours_and_gains_in_parentheses() -> None:
    other = PublishedFigure("LocalAgg", "top-1", 58.8)
    order = ("SimCLR", "LocalAgg", "WCL")
    table = dataclasses.replace(TABLE, rows=order, published=(other,), wide=True)
    text = markdown(described(table, fill(table, table.cells, found, range(3))))
    assert [line for line in text.splitlines() if line.startswith("|")] == [
        "|  | top-1 |",
        "| --- | --- |",
        "| SimCLR † | 70.00 |",
        "| SimCLR | 62.00 ± 2.00 |",
        "| LocalAgg † | 58.80 |",
        "| WCL † | 72.50 (+2.50) |",
        "| WCL | 65.00 ± 2.00 (+3.00) |",
    ]
    assert "top-1 (%): mean over 3 seeds ± standard deviation." in text
    assert "In parentheses: gains over SimCLR." in text
