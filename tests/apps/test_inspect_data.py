"""`wcl data`: what a source holds."""

from pathlib import Path

from PIL import Image

from images import photo_folder
from wcl.apps.inspect_data import _sizes_or_errors, examine
from wcl.data import Source, open_source


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
