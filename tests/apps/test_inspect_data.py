"""`wcl data`: what a source holds."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from images import photo_folder
from wcl.apps.inspect_data import _sizes_or_errors, describe, examine
from wcl.config import DataConfig
from wcl.data import Source, measured_levels, open_source


def test_examine_counts_sizes_classes_and_unreadable_files(tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", each=5)
    whole = (root / "cat" / "001.jpg").read_bytes()
    (root / "cat" / "001.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "dog" / "002.jpg").write_text("no picture")
    summary = examine(open_source(str(root)))
    assert summary.count == 10
    assert sum(summary.sizes.values()) == 8
    assert summary.classes == {"cat": 5, "dog": 5}
    assert sorted(Path(where).name for where in summary.unreadable) == ["001.jpg", "002.jpg"]


def test_checking_images_begins_before_all_are_handed_to_the_threads() -> None:
    """Or a large source would take long, and gigabytes, before the first sign of progress."""
    opened: list[int] = []

    class Many(Source):
        name = "many"

        def __len__(self) -> int:
            return 5000

        def image(self, index: int) -> Image.Image:
            opened.append(index)
            return Image.new("L", (index + 1, 1))

        def where(self, index: int) -> str:
            return str(index)

    results = _sizes_or_errors(Many())
    assert next(results) == (1, 1)
    results.close()
    assert 1 <= len(opened) <= 1000
    assert list(_sizes_or_errors(Many())) == [(1, index + 1) for index in range(5000)]


def test_the_range_of_images_of_more_than_8_bits_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.linspace(100, 4000, 64 * 64).astype(np.uint16).reshape(64, 64)
    for number in range(3):
        Image.fromarray(values).save(tmp_path / f"{number}.png")
    describe(DataConfig(), str(tmp_path))
    (levels,) = measured_levels(open_source(str(tmp_path)), seed=0)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"black and white are {levels[0]:,.6g} and {levels[1]:,.6g}" in printed
    assert 100 <= levels[0] < 150 and 3950 < levels[1] <= 4000
    describe(DataConfig(), "digits")
    assert "8 bits" not in capsys.readouterr().out
