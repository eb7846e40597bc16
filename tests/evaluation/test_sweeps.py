"""Several settings in one pass, accuracy by class, the confusion table, features kept."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wcl
from images import photo_folder
from plot_text import overlaps
from runs import photo_run, tiny_run
from wcl.cli import run_command
from wcl.config import KnnConfig
from wcl.data import limited, open_source
from wcl.evaluation.classes import by_class, confusion, draw_confusion, write_confusion
from wcl.evaluation.features import features, features_key
from wcl.models.weights_file import read_all, write_weights
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=4, limit=256)


def test_a_sweep_of_knn_is_the_single_evaluations(run: Path) -> None:
    sweep = wcl.evaluate(run, "knn", "digits", k=[20, 1, 200], temperature=[0.1, 0.5])
    assert len(sweep.details["sweep"]) == 6
    for row in sweep.details["sweep"]:
        assert (
            row["top1"]
            == wcl.evaluate(run, "knn", "digits", k=row["k"], temperature=row["temperature"]).top1
        )
    assert sweep.top1 == sweep.details["sweep"][0]["top1"]
    best = max(row["top1"] for row in sweep.details["sweep"])
    assert sweep.details["best_on_test"] == best


def test_a_sweep_of_rates_is_the_single_probes(run: Path) -> None:
    sweep = wcl.evaluate(run, "linear", "digits", lr=[0.1, 3.0], epochs=3)
    for row in sweep.details["sweep"]:
        alone = wcl.evaluate(run, "linear", "digits", lr=row["lr"], epochs=3)
        assert alone.top1 == row["top1"]
        assert alone.details["top5"] == row["top5"]
    assert sweep.top1 == sweep.details["sweep"][0]["top1"]


def test_accuracy_by_class_and_the_confusion_are_counted_rightly() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1, 3])
    predicted = torch.tensor([0, 1, 1, 1, 0, 3])
    table = confusion(predicted, labels, 4)
    assert table.tolist() == [[1, 1, 0, 0], [1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    rows = by_class(predicted, labels, ["a", "b", "c", "d"])
    assert [(row["class"], row["images"]) for row in rows] == [("a", 2), ("b", 3), ("d", 1)]
    assert [row["top1"] for row in rows] == pytest.approx([1 / 2, 2 / 3, 1])


def test_a_million_classes_are_counted_but_not_tabled(tmp_path: Path) -> None:
    classes = [str(number) for number in range(10**6)]
    labels = torch.tensor([999_999, 0])
    assert by_class(labels, labels, classes) == [
        {"class": "0", "images": 1, "top1": 1},
        {"class": "999999", "images": 1, "top1": 1},
    ]
    with pytest.raises(InputError, match=r"--confusion: 1,000,000 classes"):
        write_confusion(KnnConfig(confusion=str(tmp_path / "a.csv")), labels, labels, classes)


@pytest.mark.parametrize("count", [2, 10, 20, 50])
def test_the_plot_of_a_confusion_matrix_shows_its_counts_and_names(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    labels, predicted = torch.randint(count, (2, 4000), generator=generator)
    labels = torch.where(labels == 1, 0, labels)  # a class without test images
    counts = confusion(predicted, labels, count)
    figure = draw_confusion(counts, [f"_class ${number}$" for number in range(count)])
    assert overlaps(figure) == []
    axes = figure.axes[0]
    shown = np.asarray(axes.images[0].get_array())
    for row, expected in zip(shown, counts.tolist(), strict=True):
        assert row == pytest.approx(np.array(expected) / max(1, sum(expected)))
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == [f"_class ${n}$" for n in range(count)]
    if count <= 20:
        numbers = {text.get_position()[::-1]: int(text.get_text()) for text in axes.texts}
        assert numbers == {tuple(at): int(counts[tuple(at)]) for at in counts.nonzero().tolist()}


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_suffix_of_the_confusion_decides_on_a_plot(suffix: str, tmp_path: Path) -> None:
    labels, path = torch.tensor([0, 1]), tmp_path / f"matrix{suffix}"
    write_confusion(KnnConfig(confusion=str(path)), labels, labels, ["a", "b"])
    assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF", b"<?xm")
    too_many = [str(number) for number in range(1001)]
    with pytest.raises(InputError, match=r"--confusion: 1,001 classes .* \.csv"):
        write_confusion(KnnConfig(confusion=str(path)), labels, labels, too_many)


@pytest.mark.parametrize("protocol", ["knn", "linear"])
def test_classes_and_confusion_on_request(
    protocol: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "confusion.csv"
    words = ["eval", protocol, str(run), "--data", "digits", "--per_class", "true"]
    words += ["--confusion", str(out), *(["--epochs", "2"] if protocol == "linear" else [])]
    assert run_command([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["class"] for row in found["rows"]] == [str(digit) for digit in range(10)]
    with out.open() as file:
        lines = list(csv.reader(file))[1:]
    right = sum(int(line[1 + number]) for number, line in enumerate(lines))
    assert right / found["n_test"] == pytest.approx(found["top1"])
    assert run_command(words) == 2
    assert "exists already" in capsys.readouterr().err


def test_an_empty_list_of_settings_is_refused(run: Path) -> None:
    with pytest.raises(InputError, match="at least one"):
        wcl.evaluate(run, "knn", "digits", k=[])


def test_features_are_computed_once_for_an_encoder_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    source = open_source(str(data))
    encoder = wcl.load(run)
    first = features(encoder, source, num_workers=0)
    kept = list((run / "features").iterdir())
    assert len(kept) == 1

    def computed_again(*args: object) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(type(encoder), "embed", computed_again)
        second = features(wcl.load(run), open_source(str(data)), num_workers=0)
    assert all(map(torch.equal, first, second))


def test_changed_weights_images_or_sizes_are_computed_anew(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    encoder = wcl.load(run)
    first, _ = features(encoder, open_source(str(data)), num_workers=0)
    (data / "cat" / "000.jpg").write_bytes((data / "cat" / "001.jpg").read_bytes())
    second, _ = features(encoder, open_source(str(data)), num_workers=0)
    assert not torch.equal(first[0], second[0])
    torch.testing.assert_close(second[0], second[1])
    with torch.no_grad():
        next(encoder.backbone.parameters()).mul_(2)
    third, _ = features(encoder, open_source(str(data)), num_workers=0)
    assert not torch.equal(second, third)
    assert len(list((run / "features").iterdir())) == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def zero(path: Path) -> None:
    """All values, but not what the file says of them."""
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:header] + bytes(len(content) - header))


def without_rows(path: Path) -> None:
    values, metadata = read_all(path)
    write_weights(path, {"features": values["features"]}, metadata)


def in_half_precision(path: Path) -> None:
    values, metadata = read_all(path)
    write_weights(path, values | {"features": values["features"].half()}, metadata)


@pytest.mark.parametrize("damage", [cut, flip_a_bit, zero, without_rows, in_half_precision])
def test_kept_features_that_were_damaged_are_computed_again(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    first = features(wcl.load(run), open_source(str(data)), num_workers=0)
    (kept,) = (run / "features").iterdir()
    damage(kept)
    second = features(wcl.load(run), open_source(str(data)), num_workers=0)
    assert all(map(torch.equal, first, second))


def test_features_under_the_name_of_others_are_not_taken_for_them(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    some, others = (limited(open_source(str(data)), 5, seed) for seed in (0, 1))
    first = features(encoder, some, num_workers=0)
    (kept,) = (tmp_path / "run" / "features").iterdir()
    features(encoder, others, num_workers=0)
    (other,) = {*(tmp_path / "run" / "features").iterdir()} - {kept}
    kept.write_bytes(other.read_bytes())
    assert all(map(torch.equal, first, features(encoder, some, num_workers=0)))


def test_images_that_were_away_for_a_moment_are_not_left_out_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    source = open_source(str(data))
    key = features_key(encoder, source)
    monkeypatch.setattr("wcl.evaluation.features.features_key", lambda *_: key)  # asked before
    (data / "cat").rename(tmp_path / "away")
    assert len(features(encoder, source, num_workers=0)[1]) == 12
    assert "12 of 24 images cannot be read" in capsys.readouterr().err
    assert len(features(encoder, source, num_workers=0)[1]) == 12  # kept
    (tmp_path / "away").rename(data / "cat")
    assert len(features(encoder, source, num_workers=0)[1]) == 24
    assert "12 of 24 images cannot be read" in capsys.readouterr().err  # of the second time alone
    assert len(features(encoder, source, num_workers=0)[1]) == 24
    assert capsys.readouterr().err.count("cannot be read") == 0


def test_an_image_that_is_cut_short_does_not_have_all_features_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo_folder(tmp_path / "data")
    photo = data / "cat" / "003.jpg"
    photo.write_bytes(photo.read_bytes()[:-100])  # it can still be opened
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    first = features(encoder, open_source(str(data)), num_workers=0)
    assert len(first[1]) == 23
    monkeypatch.delattr("wcl.evaluation.features._compute")
    assert all(map(torch.equal, first, features(encoder, open_source(str(data)), num_workers=0)))


def test_that_features_cannot_be_kept_is_said_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = tmp_path / "run"
    copied.mkdir()
    shutil.copy(run / "encoder.safetensors", copied)
    (copied / "features").write_text("in the way")
    wcl.evaluate(copied, "linear", "digits", epochs=5)
    assert capsys.readouterr().err.count("features are not kept for the next time (") == 1


@pytest.mark.parametrize(
    ("protocol", "options", "says"),
    [
        ("linear", {"seed": 2**63}, "--seed: must be between 0 and"),
        ("finetune", {"seed": -1}, "--seed: must be between 0 and"),
        ("lowshot", {"seed": 10**23}, "--seed: must be between 0 and"),
        ("linear", {"lr": 1e300}, "--lr: must be above 0 and at most"),
        ("finetune", {"encoder_rate": 1e300}, "--encoder_rate: must be above 0 and at most"),
        ("lowshot", {"cost": 1e300}, "--cost: must be above 0 and at most 1e"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    protocol: str, options: dict[str, Any], says: str, run: Path
) -> None:
    with pytest.raises(InputError, match=says):
        wcl.evaluate(run, protocol, "digits", **options)


def test_an_encoder_that_is_not_of_a_run_keeps_nothing(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    wcl.evaluate(run / "encoder.safetensors", "knn", data)
    assert not (run / "features").exists()
