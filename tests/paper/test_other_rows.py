"""The tables have every row of the paper, with its figures where nothing is made."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import wcl.paper
from wcl.paper.catalog import table
from wcl.paper.other_rows import with_other_rows
from wcl.paper.show import fill
from wcl.paper.tables import Table, only

PAPER = yaml.safe_load((Path(wcl.paper.__path__[0]) / "figures.yaml").read_text(encoding="utf-8"))
SOURCES = {
    "cifar": ["Table 1"],
    "heads": ["Table 2"],
    "warmup": ["Table 3"],
    "cost": ["Table 4"],
    "imagenet": ["Table 4", "Table 5", "Table 6"],
    "voc": ["Table 7"],
    "semi": ["Table 8"],
}


def lines_of(found: Table, text: str = "") -> list[dict[str, Any]]:
    """The lines of a table of which nothing is made yet."""
    lines = fill(found, only(found, text), lambda cell, seed: None, range(1))
    return with_other_rows(found, lines, text)


@pytest.mark.parametrize("name", SOURCES)
def test_a_table_has_every_figure_of_its_columns_as_printed(name: str) -> None:
    lines = lines_of(table(name))
    found = {(line["row"], line["column"]): line["paper"] for line in lines}
    assert len(found) == len(lines)
    columns = {line["column"] for line in lines}
    for source in SOURCES[name]:
        for row, figures in PAPER[source]["rows"].items():
            for column, figure in zip(PAPER[source]["columns"], figures, strict=True):
                if column in columns and figure is not None:
                    assert found[row, column] == figure, (source, row, column)


@pytest.mark.parametrize("name", SOURCES)
def test_the_rows_of_each_table_are_in_the_order_of_the_paper(name: str) -> None:
    order = list(dict.fromkeys(line["row"] for line in lines_of(table(name))))
    earlier: set[str] = set()
    for source in SOURCES[name]:
        # A row that two tables have is shown in the first.
        rows = [row for row in PAPER[source]["rows"] if row in order and row not in earlier]
        earlier |= set(rows)
        assert sorted(rows, key=order.index) == rows


def test_the_rows_between_are_those_of_systems_that_are_not_made() -> None:
    lines = {line["row"]: line for line in lines_of(table("imagenet"))}
    for row in ("LocalAgg, 200 epochs", "CPC v2, 200 epochs", "SeLa, 400 epochs", "Supervised"):
        assert lines[row]["published_only"]
        assert (lines[row]["ours"], lines[row]["gain"], lines[row]["seeds"]) == (None, None, None)
    assert not lines["WCL, 200 epochs"]["published_only"]
    semi = {line["row"] for line in lines_of(table("semi")) if line["published_only"]}
    assert semi >= {"S4L", "UDA", "FixMatch", "PIRL, from the pool"}


def test_published_rows_are_chosen_like_the_others() -> None:
    rows = {line["row"] for line in lines_of(table("imagenet"), "200 epochs")}
    assert rows == {row for row in PAPER["Table 5"]["rows"] if "200 epochs" in row}
    columns = {line["column"] for line in lines_of(table("semi"), "1%, top-5")}
    assert columns == {"1%, top-1", "1%, top-5"}  # one fine-tuning gives both
    lines = lines_of(table("semi"), "1%, top-5")
    assert {line["column"] for line in lines if line["published_only"]} == {"1%, top-5"}


def test_rows_that_only_we_have_stay_behind_those_they_belong_to() -> None:
    order = list(dict.fromkeys(line["row"] for line in lines_of(table("voc"))))
    for row in ("Random", "WCL, 200 epochs", "WCL, 800 epochs"):
        assert order[order.index(row) + 1] == f"{row}, best on test"
