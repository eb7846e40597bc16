"""Choosing cells of a table by a text."""

import pytest

from wcl.paper.catalog import table
from wcl.paper.tables import only
from wcl.system.errors import InputError


def test_chosen_rows_come_with_their_baselines() -> None:
    chosen = only(table("cifar"), "WCL, batch 256")
    assert {cell.row for cell in chosen} == {"WCL, batch 256", "SimCLR, batch 256"}
    crossed = only(table("cifar"), "batch 256 + CIFAR-10, 100 epochs")
    assert {(cell.row, cell.figures[0].column) for cell in crossed} == {
        (f"{method}, batch 256", "CIFAR-10, 100 epochs") for method in ("SimCLR", "WCL")
    }
    column = only(table("cifar"), "CIFAR-10, 400")
    assert len(column) == 6
    assert only(table("heads"), "") == table("heads").cells
    with pytest.raises(InputError, match="no row or column of heads contains 'nothing'"):
        only(table("heads"), "nothing")
