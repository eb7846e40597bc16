"""Saved plots: their format, their reproducibility, and the settings they leave alone."""

from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from wcl.system.plots import PLOT_SUFFIXES, plot_style, save_figure


@plot_style()
def some_figure() -> Figure:
    figure = Figure()
    figure.subplots().plot([1, 2], [3, 4], label="line")
    return figure


@pytest.mark.parametrize(
    ("suffix", "starts"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_the_suffix_decides_the_format_and_equal_plots_are_equal_files(
    suffix: str, starts: bytes, tmp_path: Path
) -> None:
    assert suffix in PLOT_SUFFIXES
    contents = []
    for name in ("first", "second.tmp"):
        save_figure(some_figure(), tmp_path / name, suffix)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0].startswith(starts)
    assert contents[0] == contents[1]


def test_the_settings_of_the_user_neither_change_nor_show() -> None:
    before = dict(matplotlib.rcParams)
    plain = some_figure().axes[0].spines["left"].get_edgecolor()
    with matplotlib.rc_context({"axes.edgecolor": "red", "font.size": 30}):
        assert some_figure().axes[0].spines["left"].get_edgecolor() == plain
        assert matplotlib.rcParams["font.size"] == 30
    assert dict(matplotlib.rcParams) == before
