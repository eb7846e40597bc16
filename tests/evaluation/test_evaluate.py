"""`wcl.evaluate` on real runs: what it reads, what it leaves unchanged, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

import wcl
from images import flat_folder, photo_folder
from runs import photo_run, tiny_run
from wcl.data import open_splits
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=8, limit=512)


def test_an_evaluation_changes_no_file_of_the_run(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    wcl.evaluate(run, "knn", "digits")
    assert before == {path: path.read_bytes() for path in before}
    new = {path.relative_to(run).parts[0] for path in run.rglob("*") if path.is_file()}
    assert new - {path.relative_to(run).parts[0] for path in before} <= {"features", "references"}


def test_without_data_a_run_is_evaluated_on_its_own(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = wcl.evaluate(run, "knn")
    assert "on digits, which the run was trained on" in capfd.readouterr().err
    given = wcl.evaluate(run, "knn", "digits")
    assert (own.top1, own.n_train, own.n_test) == (given.top1, given.n_train, given.n_test)
    assert "trained on" not in capfd.readouterr().err
    with pytest.raises(InputError, match="data: give the labeled images"):
        wcl.evaluate(run / "encoder.safetensors", "knn")  # a file by itself
    unlabeled = photo_run(flat_folder(tmp_path / "flat"), tmp_path / "run", epochs=1)
    with pytest.raises(InputError, match="flat: has no labels"):
        wcl.evaluate(unlabeled, "knn")


def test_photos_are_evaluated_too(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    assert wcl.evaluate(run, "knn", str(data)).n_test == 4
    assert wcl.evaluate(run, "linear", str(data), mode="paper", epochs=1).n_train == 20


def test_an_encoder_of_gray_images_takes_color_and_the_other_way_round(
    run: Path, tmp_path: Path
) -> None:
    data = photo_folder(tmp_path / "data")
    for mode in ("fast", "paper"):
        assert wcl.evaluate(run, "linear", data, mode=mode, epochs=1).n_test == 4
    color = photo_run(data, tmp_path / "color", epochs=1)
    for mode in ("fast", "paper"):
        assert wcl.evaluate(color, "linear", "digits", mode=mode, epochs=1).n_test == 500


def test_a_part_of_which_nothing_can_be_read_is_not_taken_for_the_whole(
    run: Path, tmp_path: Path
) -> None:
    data = photo_folder(tmp_path / "data", each=10)
    _, test = open_splits(str(data))
    for row in range(len(test)):
        Path(test.where(row)).write_bytes(b"")
    with pytest.raises(InputError, match="none of the 4 images asked for can be read"):
        wcl.evaluate(run, "knn", data, num_workers=0)


def test_a_mistyped_protocol_is_named(run: Path) -> None:
    with pytest.raises(InputError, match="did you mean knn"):
        wcl.evaluate(run, "kmn", "digits")


@pytest.mark.parametrize(
    ("protocol", "options", "says"),
    [
        ("linear", {"seed": 2**63}, "seed: must be between 0 and"),
        ("finetune", {"seed": -1}, "seed: must be between 0 and"),
        ("lowshot", {"seed": 10**23}, "seed: must be between 0 and"),
        ("linear", {"lr": 1e300}, "lr: .* more than 0 and at most"),
        ("finetune", {"encoder_lr": 1e300}, "encoder_lr: must be more than 0 and at most"),
        ("lowshot", {"cost": 1e300}, "cost: must be more than 0 and at most"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    protocol: str, options: dict[str, Any], says: str, run: Path
) -> None:
    with pytest.raises(InputError, match=says):
        wcl.evaluate(run, protocol, "digits", **options)
