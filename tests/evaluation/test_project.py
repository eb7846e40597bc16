"""The map of features: which images are drawn, what is measured, and what is left behind."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import silhouette_score
from torch.nn import functional as F

import wcl
from plot_text import overlaps
from runs import tiny_run
from wcl.cli import run_command
from wcl.config import ProjectConfig
from wcl.data import open_source
from wcl.evaluation.project import choose, draw, run_names, separation
from wcl.system.errors import InputError
from wcl.system.paths import shortened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


def test_the_same_images_are_drawn_for_the_same_seed_and_of_as_many_classes_as_asked_for() -> None:
    source = open_source("digits")
    config = ProjectConfig(groups=4, per_group=7, seed=3)
    one, two = choose(source, config), choose(source, config)
    assert one.labels is not None
    assert one.fingerprint() == two.fingerprint()
    assert torch.bincount(one.labels)[one.labels.unique()].tolist() == [7] * 4
    other = choose(source, ProjectConfig(groups=4, per_group=7, seed=4))
    assert other.fingerprint() != one.fingerprint()


def test_separation_is_what_a_loop_says() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(30, 5, generator=generator).double()
    labels = torch.arange(30) % 3
    unit = F.normalize(values, dim=1)
    means = [F.normalize(unit[labels == c].mean(dim=0), dim=0) for c in range(3)]
    tight = [1 - unit[i] @ means[int(labels[i])] for i in range(30)]
    apart = [1 - means[a] @ means[b] for a in range(3) for b in range(3) if a != b]
    found = separation(values, labels)
    assert found["compactness"] == pytest.approx(float(torch.stack(tight).mean()))
    assert found["distance"] == pytest.approx(float(torch.stack(apart).mean()))
    expected = silhouette_score(values.numpy(), labels.numpy(), metric="cosine")
    assert found["silhouette"] == pytest.approx(expected)


def test_classes_that_lie_apart_are_tight_and_far() -> None:
    labels = torch.arange(40) % 2
    values = F.one_hot(labels, 2).double() + 0.01 * torch.randn(40, 2)
    found = separation(values, labels)
    assert found["compactness"] < 0.01
    assert found["distance"] > 0.9
    assert found["silhouette"] > 0.9


def test_two_runs_are_drawn_side_by_side_with_the_same_images(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "other", epochs=1, seed=1)
    out = tmp_path / "map.png"
    settings: dict[str, Any] = {"groups": 3, "per_group": 6}
    found = wcl.evaluate(run, "project", "digits", against=str(other), out=str(out), **settings)
    assert [row["name"] for row in found.rows] == ["digits", "other"]
    assert found.as_dict()["silhouette"] == found.rows[0]["silhouette"]
    with (tmp_path / "map.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == found.n_test == 18
    assert {"image", "class", "run_x", "run_y", "against_x", "against_y"} == set(lines[0])
    alone = wcl.evaluate(run, "project", "digits", out=str(tmp_path / "one.png"), **settings)
    with Image.open(out) as both, Image.open(tmp_path / "one.png") as one:
        assert both.width > 1.8 * one.width
    assert alone.rows[0] == found.rows[0]


def test_nothing_is_trained_so_no_number_of_training_images_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "project", str(run), "--data", "digits", "--groups", "2", "--per_group", "5"]
    assert run_command([*words, "--out", str(tmp_path / "map.png")]) == 0
    said = capsys.readouterr().out
    assert "n_test" in said
    assert "n_train" not in said


@pytest.mark.parametrize(
    ("maps", "count", "length"),
    [(1, 10, 1), (2, 10, 1), (2, 10, 8), (1, 10, 40), (1, 30, 20), (2, 30, 40)],
)
def test_every_class_has_a_marker_in_the_legend_and_no_text_overlaps(
    maps: int, count: int, length: int
) -> None:
    names = [f"_{number}$" + "x" * length for number in range(count)]
    labels = torch.arange(3 * count) % count
    places = [torch.rand(3 * count, 2) * torch.tensor([9, 1]) for _ in range(maps)]
    title = "run (wcl, epoch 1)\ncompactness 0.123   distance 0.456   silhouette 0.789"
    figure = draw(places, [title] * maps, labels, names)
    assert overlaps(figure) == []
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [shortened(name, 32) for name in names]
    for axes, expected in zip(figure.axes, places, strict=True):
        groups = axes.collections
        paths = [np.asarray(group.get_paths()[0].vertices) for group in groups]
        colors = [tuple(np.asarray(group.get_facecolor())[0]) for group in groups]
        looks = {(color, path.tobytes()) for color, path in zip(colors, paths, strict=True)}
        assert len(looks) == len(groups) == count
        for number, group in enumerate(groups):
            assert np.array_equal(group.get_offsets(), expected[labels == number])


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_a_map_is_written_in_the_format_of_its_name(suffix: str, run: Path, tmp_path: Path) -> None:
    out = tmp_path / f"map{suffix}"
    wcl.evaluate(run, "project", "digits", out=str(out), groups=2, per_group=5)
    assert out.read_bytes()[:5] == {".pdf": b"%PDF-", ".svg": b"<?xml"}[suffix]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"out": "map.jpg"}, "must be a .png or .pdf or .svg file"),
        ({"out": "nowhere/map.png"}, "in a folder that exists"),
        ({"groups": 1}, "groups: must be at least 2"),
        ({"against": "nothing"}, "nothing: no such run"),
        ({"classes": 1}, "at least two classes"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    settings: dict[str, Any],
    complaint: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=complaint):
        wcl.evaluate(run, "project", "digits", **settings)
    assert list(tmp_path.iterdir()) == []


def test_no_picture_is_overwritten(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.png"
    out.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        wcl.evaluate(run, "project", "digits", out=str(out))
    assert out.read_text() == "mine"


def test_runs_are_called_like_their_folders_as_far_as_that_tells_them_apart() -> None:
    a, b = Path("/runs/monday/first"), Path("/runs/tuesday/first")
    assert run_names({"run": a, "against": Path("/x/second")}) == {
        "run": "first",
        "against": "second",
    }
    assert run_names({"run": a, "against": b}) == {
        "run": "monday/first",
        "against": "tuesday/first",
    }
    assert run_names({"run": a, "against": a}) == {"run": "first", "against": "first"}
    assert run_names({"run": None, "against": a}) == {"run": "run", "against": "first"}
    strange = run_names({"run": Path("/" + "long" * 30 + "\n")})["run"]
    assert len(strange) == 32 and strange.isprintable() and strange.endswith("\\n")
