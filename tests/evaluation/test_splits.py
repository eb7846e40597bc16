"""Training and test images whose classes are matched by name."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wcl
from images import encoded, flat_folder, photo_folder, picture
from runs import tiny_run
from wcl.data import open_splits
from wcl.evaluation.knn import predict
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=8, limit=512)


def test_a_test_source_is_opened_at_its_test_split(run: Path) -> None:
    own, named = (wcl.evaluate(run, "knn", "digits", test_data=t) for t in ("", "digits"))
    assert own.top1 == named.top1


def test_data_without_labels_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no labels"):
        wcl.evaluate(run, "knn", str(flat_folder(tmp_path / "data")))


def test_a_test_set_may_lack_a_class(run: Path, tmp_path: Path) -> None:
    train = photo_folder(tmp_path / "train", ("ant", "bee", "cow"))
    test = photo_folder(tmp_path / "test", ("ant", "cow"))
    found = wcl.evaluate(run, "knn", train, test_data=str(test), k=1)
    whole = wcl.evaluate(run, "knn", train, test_data=str(train), k=1)
    assert found.n_test == 24
    assert whole.top1 == 1.0


def test_labels_may_have_gaps_in_their_numbers(run: Path, tmp_path: Path) -> None:
    images = [{"bytes": encoded(picture(i)), "path": None} for i in range(40)]
    labels = [(2, 7)[i % 2] for i in range(40)]
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "gaps.parquet")
    data = tmp_path / "gaps.parquet"
    assert wcl.evaluate(run, "knn", data).details["k"] == 16
    options: dict[str, Any] = {"labels": "3-per-class", "epochs": 1, "scratch": False}
    assert wcl.evaluate(run, "finetune", data, **options).n_train == 6


def test_a_test_set_of_other_classes_is_refused(run: Path, tmp_path: Path) -> None:
    one = photo_folder(tmp_path / "one")
    other = photo_folder(tmp_path / "other", ("cat", "cow"))
    with pytest.raises(InputError, match=r"classes that .*one has no training image of: cow$"):
        wcl.evaluate(run, "knn", str(one), test_data=str(other))


def test_raw_digits_are_easy_so_the_splits_are_sound() -> None:
    train, test = open_splits("digits")
    assert isinstance(train, wcl.data.ArraySource)
    assert isinstance(test, wcl.data.ArraySource)
    assert train.labels is not None
    assert test.labels is not None
    predicted = predict(
        test.pixels.flatten(1).float(), train.pixels.flatten(1).float(), train.labels, 10, 1, 0.1
    )
    assert float((predicted == test.labels).float().mean()) > 0.97
