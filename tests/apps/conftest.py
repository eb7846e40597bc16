"""Photos and an encoder of them."""

from pathlib import Path

import pytest
from PIL import Image

from images import photo_folder, picture
from runs import photo_run


@pytest.fixture(scope="package")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_folder(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="package")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(data, tmp_path_factory.mktemp("runs") / "photos", epochs=4)


@pytest.fixture
def with_copies(tmp_path: Path) -> Path:
    """Ten pictures; one of them also as an exact copy, resized and recompressed."""
    root = tmp_path / "library"
    root.mkdir()
    for i in range(10):
        picture(i, 96, 128).save(root / f"{i}.jpg", quality=95)
    (root / "3 copy.jpg").write_bytes((root / "3.jpg").read_bytes())
    with Image.open(root / "3.jpg") as image:
        image.resize((96, 72), Image.Resampling.BICUBIC).save(root / "3 small.png")
        image.save(root / "3 again.jpg", quality=70)
    return root
