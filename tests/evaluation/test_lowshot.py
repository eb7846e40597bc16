"""Low-shot evaluations of whole runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.svm import LinearSVC

import wcl
from images import photo_folder
from runs import photo_run, tiny_run
from voc_kit import scenes, voc_kit
from wcl.cli import run_command
from wcl.data import open_source
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lists = {"trainval": scenes(40), "test": scenes(30, start=100)}
    return voc_kit(tmp_path_factory.mktemp("voc") / "VOCdevkit", lists)


@pytest.fixture(scope="module")
def photos(kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(kit, tmp_path_factory.mktemp("runs") / "voc", epochs=1)


def test_voc_is_measured_by_mean_average_precision(photos: Path, kit: Path) -> None:
    before = {path: path.read_bytes() for path in photos.rglob("*") if path.is_file()}
    found = wcl.evaluate(photos, "lowshot", kit)
    assert before == {path: path.read_bytes() for path in before}
    assert found.measure == "map"
    assert (found.n_train, found.n_test) == (40, 30)
    assert found.details["classes"] == 3
    assert [row["k"] for row in found.rows] == [1, 2, 4, 8, "all"]
    assert found.score == found.rows[-1]["mean"]
    assert found.rows[-1]["images"] == 40
    assert found.rows[-1]["std"] == 0
    assert found.rows[0]["std"] > 0
    assert all(0 < row["mean"] <= 1 for row in found.rows)


def test_the_whole_set_is_the_protocol_written_out(photos: Path, kit: Path) -> None:
    """Against scikit-learn on the encoder's own features, class by class.

    Images with difficult objects alone are negatives in training and left out at test.
    """
    encoder = wcl.load(photos)
    kits = [wcl.data.open_splits(str(kit))[i] for i in range(2)]
    x, y = (
        encoder.embed([source.where(i) for i in range(len(source))]).double().numpy()
        for source in kits
    )
    x, y = (f / np.linalg.norm(f, axis=1, keepdims=True) for f in (x, y))
    precisions = []
    for name in ("cat", "dog", "person"):
        c = list(kits[0].classes).index(name)
        train, test = (s.multi_labels[:, c].numpy() for s in kits)  # type: ignore[index]
        assert (train == -1).any()
        svm = LinearSVC(C=1.0, class_weight={1: 2, 0: 1}, dual=False).fit(x, train == 1)
        scores = svm.decision_function(y[test != -1])
        precisions.append(average_precision_score(test[test != -1], scores))
    found = wcl.evaluate(photos, "lowshot", kit, k="1", draws=1).score
    assert found == pytest.approx(np.mean(precisions), abs=1e-6)


def test_difficult_objects_are_left_out_at_test_only(photos: Path, tmp_path: Path) -> None:
    """Against kits with other annotations of the same images."""

    def score(train: list[str], test: list[str] | None) -> float:
        """Change the objects of one image of each split; None leaves the test image out."""
        lists: dict[str, dict[str, list[str]]] = {
            name: {
                f"{i:06d}": ["cat", "dog"] if i % 2 else ["dog"] for i in range(first, first + 20)
            }
            for name, first in (("trainval", 0), ("test", 100))
        }
        lists["trainval"]["000000"] = train
        lists["test"]["000100"] = test or []
        if test is None:
            del lists["test"]["000100"]
        kit = voc_kit(tmp_path / str(len(list(tmp_path.iterdir()))), lists)
        # Dogs are in every image, so their precision is 1: the score measures cats.
        return wcl.evaluate(photos, "lowshot", kit, k="1", draws=1).score

    difficult = score(["dog", "cat?"], ["dog", "cat?"])
    assert difficult == score(["dog"], ["dog", "cat?"])  # absent in training
    assert difficult != score(["dog", "cat"], ["dog", "cat?"])
    assert difficult == score(["dog", "cat?"], None)  # left out at test


def test_what_was_drawn_is_written_down(photos: Path, kit: Path) -> None:
    source = open_source(str(kit))
    for scheme in ("union", "per-class"):
        found = wcl.evaluate(photos, "lowshot", kit, k="2,4", draws=3, scheme=scheme)
        written = json.loads(Path(found.details["drawn"]).read_text())
        assert Path(found.details["drawn"]).parent == photos / "lowshot"
        assert [(d["k"], d["run"]) for d in written["draws"]] == [
            (k, run) for k in (2, 4) for run in range(3)
        ]
        for number, place in written["images"].items():
            assert source.where(int(number)) == place
        for drawn in written["draws"]:
            if scheme == "union":
                assert len(drawn["rows"]) <= 3 * drawn["k"]
            else:
                cats = drawn["classes"]["cat"]
                assert (len(cats["with"]), len(cats["without"])) == (drawn["k"], 2 * drawn["k"])


def test_an_encoder_without_a_folder_of_its_own_writes_nothing(photos: Path, kit: Path) -> None:
    found = wcl.evaluate(photos / "encoder.safetensors", "lowshot", kit, k="1", draws=1)
    assert "drawn" not in found.details


def test_an_unreadable_photo_is_left_out(tmp_path: Path) -> None:
    kit = voc_kit(tmp_path / "kit", {"trainval": scenes(16), "test": scenes(16, start=100)})
    run = photo_run(kit, tmp_path / "run", epochs=1)
    (kit / "VOC2007" / "JPEGImages" / "000003.jpg").unlink()
    found = wcl.evaluate(run, "lowshot", kit, k="1", draws=2)
    assert (found.n_train, found.n_test) == (15, 16)


def test_classes_are_matched_by_name_and_a_test_set_may_lack_one(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = {str(i): ["ant", "bee", "cow"][i % 3 : i % 3 + 2] for i in range(12)}
    test = {str(i): ["bee"] if i % 2 else ["cow"] for i in range(20, 28)}
    kits = [
        voc_kit(tmp_path / name, {"trainval": images})
        for name, images in (("train", train), ("same", train), ("test", test))
    ]
    assert list(open_source(str(kits[2])).classes) == ["bee", "cow"]
    settings: dict[str, Any] = {"k": "1", "draws": 2, "cost": 1e6}
    own = wcl.evaluate(photos, "lowshot", kits[0], test_data=str(kits[1]), **settings)
    assert own.score == 1.0  # what was learned by heart
    capsys.readouterr()
    other = wcl.evaluate(photos, "lowshot", kits[0], test_data=str(kits[2]), **settings)
    assert other.n_test == 8
    assert "classes without a test image: ant" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"has no training image of: ant$"):
        wcl.evaluate(photos, "lowshot", kits[2], test_data=str(kits[0]))


def test_names_that_no_test_image_bears_are_passed_over(photos: Path, tmp_path: Path) -> None:
    """A kit with VOC's classes alone is said to have all twenty, most of them without an image."""
    train = {str(i): ["cat", "dog", "zebra"][i % 3 : i % 3 + 2] for i in range(12)}
    test = {str(i): ["dog"] if i % 2 else ["cat", "bus?"] for i in range(20, 28)}
    kits = [
        voc_kit(tmp_path / name, {"trainval": images})
        for name, images in (("train", train), ("test", test))
    ]
    assert len(open_source(str(kits[1])).classes) == 20
    options: dict[str, Any] = {"k": "1", "draws": 1}
    found = wcl.evaluate(photos, "lowshot", kits[0], test_data=str(kits[1]), **options)
    assert (found.n_test, found.details["classes"]) == (8, 3)
    with pytest.raises(InputError, match=r"has no training image of: zebra$"):
        wcl.evaluate(photos, "lowshot", kits[1], test_data=str(kits[0]), **options)


def test_one_label_per_image_is_measured_by_accuracy_too(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "lowshot", str(digits), "--data", "digits", "--k", "1,8", "--json"]
    found = []
    for _ in range(2):
        assert run_command(words) == 0
        found.append(json.loads(capsys.readouterr().out))
        found[-1].pop("seconds")
    assert found[0] == found[1]
    one, eight, everything = found[0]["rows"]
    assert (one["images"], eight["images"], everything["images"]) == (10, 80, 1297)
    assert 0.1 < one["mean"] < eight["mean"] < everything["mean"] == found[0]["top1"]
    assert found[0]["map"] == everything["map"] > 0.5
    assert "best_on_test" not in found[0]


def test_other_costs_are_reported_beside_the_result(digits: Path) -> None:
    alone, beside = (
        wcl.evaluate(digits, "lowshot", "digits", k="4", draws=2, costs=costs)
        for costs in ("", "0.01,100")
    )
    assert [row["mean"] for row in alone.rows] == [row["mean"] for row in beside.rows]
    for row in beside.rows:
        best = wcl.evaluate(digits, "lowshot", "digits", k="4", draws=2, cost=row["best_cost"])
        again = next(r for r in best.rows if r["k"] == row["k"])
        assert row["best_on_test"] == again["mean"] >= row["mean"]
    assert beside.details["best_on_test"] == beside.rows[-1]["best_on_test"]


def test_too_many_examples_are_refused_if_asked_for_and_else_left_out(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photo_folder(tmp_path / "data", each=10)
    assert run_command(["eval", "lowshot", str(digits), "--data", str(data), "--k", "4,16"]) == 2
    said = capsys.readouterr().err
    assert "--k: 16 examples per class cannot be drawn, cat has 8" in said
    assert run_command(["eval", "lowshot", str(digits), "--data", str(data)]) == 0
    shown = capsys.readouterr()
    assert "k = 16, 32, 64 left out: cat has 8 images" in shown.err
    assert "top1" in shown.out


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--k", "0"),
        ("--k", "1,many"),
        ("--k", "1.5"),
        ("--draws", "0"),
        ("--cost", "0"),
        ("--cost", ".nan"),
        ("--costs", "1,-1"),
        ("--scheme", "both"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    option: str, value: str, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "lowshot", str(digits), "--data", "digits", option, value]
    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"wcl: {option}: ")
    assert said.count("\n") == 1
