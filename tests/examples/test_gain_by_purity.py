"""The plot of gains: the points of all tables of a folder, each where its values are."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gain_by_purity import draw, main, read_points
from plot_text import overlaps
from wcl.paper.purity import Point


def point(
    purity: float = 0.5,
    gain: float = 1.0,
    data: str = "digits",
    family: str = "WCL",
    run: str = "a",
) -> Point:
    return Point(
        "some", 0, data, "top-1", purity, gain, purity, purity, family, run, baseline="simclr"
    )


def write_table(folder: Path, name: str, *points: Point) -> None:
    content = {"points": [point._asdict() for point in points]}
    (folder / f"{name}.json").write_text(json.dumps(content))


def test_tables_share_the_points_of_the_same_runs_and_smoke_is_left_out(tmp_path: Path) -> None:
    first, second, tiny = point(run="a"), point(run="b"), point(run="c")
    write_table(tmp_path, "heads-digits", first)
    write_table(tmp_path, "mechanisms-digits", first._replace(row="other"), second)
    write_table(tmp_path, "heads-smoke", tiny)
    (tmp_path / "reproduce.json").write_text("{}")
    assert read_points(tmp_path) == [first, second]


def test_the_plot_and_its_data_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gain_by_purity.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="wcl reproduce"):
        main()
    write_table(tmp_path, "heads-digits", point(0.75, 2.5))
    main()
    assert str(tmp_path / "gain-by-purity.png") in capsys.readouterr().out
    assert Image.open(tmp_path / "gain-by-purity.png").format == "PNG"
    with (tmp_path / "gain-by-purity.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert (line["purity"], line["gain"]) == ("0.75", "2.5")


def test_markers_are_where_their_values_are() -> None:
    points = [
        point(0.5, -1.0),
        point(0.6, 0.0, family="WCL, one part changed"),
        point(0.7, 1.0, "cifar10", family="WCL with crops"),
    ]
    figure = draw(points)
    assert overlaps(figure) == []
    for axes in figure.axes:
        zero, *markers = axes.lines
        assert not np.any(zero.get_ydata())
        places = np.concatenate([line.get_xydata() for line in markers])
        assert places == pytest.approx(np.array([[50, -1], [60, 0], [70, 1]]))
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    families = ["WCL", "WCL, one part changed", "WCL with crops"]
    assert legend == [*families, "digits, 3 labels per class", "CIFAR-10, linear probe"]


def test_markers_differ_in_shape_or_fill_without_colors() -> None:
    kinds = [
        (data, family)
        for data in ("digits", "cifar10", "cifar100", "imagenet")
        for family in ("WCL", "WCL, one part changed", "WCL with crops")
    ]
    figure = draw([point(data=data, family=family) for data, family in kinds])
    assert overlaps(figure) == []
    markers = figure.axes[0].lines[1:]
    looks = {(line.get_marker(), line.get_fillstyle()) for line in markers}
    assert len(looks) == len(kinds)
