"""Test images that were trained on are counted and named."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import wcl
from images import encoded, photo_folder, picture
from runs import photo_run
from wcl.data import ArraySource, open_source, open_splits, subset
from wcl.evaluation.overlap import overlap


def test_copies_are_found_under_any_name_and_others_are_not(tmp_path: Path) -> None:
    train = photo_folder(tmp_path / "train", each=6)
    test = photo_folder(tmp_path / "test", each=6)
    for path in test.rglob("*.jpg"):
        path.unlink()
    shutil.copy(train / "cat" / "003.jpg", test / "cat" / "renamed.jpg")
    picture(99).save(test / "cat" / "new.jpg")
    changed = bytearray((train / "dog" / "001.jpg").read_bytes())
    changed[-3] ^= 1  # as long, and not the same
    (test / "dog" / "changed.jpg").write_bytes(changed)
    picture(7, 100, 100).save(train / "cat" / "long.bmp")
    long = bytearray((train / "cat" / "long.bmp").read_bytes())
    (test / "cat" / "other.bmp").write_bytes(long)
    long[len(long) // 2] ^= 1  # far from its end
    (test / "cat" / "changed.bmp").write_bytes(long)
    found = overlap(open_source(str(train)), open_source(str(test)))
    assert sorted(Path(where).name for where in found) == ["other.bmp", "renamed.jpg"]


def test_files_that_are_no_images_do_not_count(tmp_path: Path) -> None:
    train = photo_folder(tmp_path / "train", each=3)
    test = photo_folder(tmp_path / "test", each=3)
    for path in [*train.rglob("*.jpg"), *test.rglob("*.jpg")]:
        path.write_bytes(b"" if path.name == "000.jpg" else b"<html>not found</html>")
    picture(1).save(train / "cat" / "002.jpg")
    shutil.copy(train / "cat" / "002.jpg", test / "dog" / "002.jpg")
    found = overlap(open_source(str(train)), open_source(str(test)))
    assert [Path(where).parts[-2:] for where in found] == [("dog", "002.jpg")]


def test_images_in_memory_are_compared_by_their_pixels() -> None:
    pixels = torch.arange(5 * 3 * 4 * 4, dtype=torch.uint8).view(5, 3, 4, 4)
    train, test = ArraySource("train", pixels[:3]), ArraySource("test", pixels[2:])
    assert overlap(train, test) == ["test[0]"]


def test_a_part_held_out_does_not_overlap(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    assert overlap(*open_splits(str(data))) == []
    source = open_source(str(data))
    both = torch.arange(4).numpy()
    assert len(overlap(subset(source, both), subset(source, both[2:]))) == 2


def test_splits_in_parquet_files_do_not_overlap_by_the_numbers_of_their_rows(
    tmp_path: Path,
) -> None:
    for number, split in enumerate(("train", "test")):
        images = []
        for row in range(3):  # of several sizes, so that they are not held in memory
            content = encoded(picture(10 * number + row, 20 + row, 30))
            images.append({"bytes": content, "path": None})
        table = pa.table({"image": images, "label": [0, 1, 0]})
        pq.write_table(table, tmp_path / f"{split}.parquet")
    assert overlap(*open_splits(str(tmp_path))) == []


def test_an_evaluation_on_its_own_training_images_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    wcl.evaluate(run, "knn", data, test_data=str(data))
    assert "24 of 24 test images are also training images" in capfd.readouterr().err
