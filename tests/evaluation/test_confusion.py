"""Accuracy by class, and the confusion matrix as a table and as a plot."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from plot_text import overlaps
from runs import tiny_run
from wcl.cli import run_command
from wcl.evaluation.confusion import by_class, confusion, draw_confusion, write_confusion
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=4, limit=256)


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
        write_confusion(str(tmp_path / "a.csv"), labels, labels, classes)


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
    write_confusion(str(path), labels, labels, ["a", "b"])
    assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF", b"<?xm")
    too_many = [str(number) for number in range(1001)]
    with pytest.raises(InputError, match=r"--confusion: 1,001 classes .* \.csv"):
        write_confusion(str(path), labels, labels, too_many)


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
