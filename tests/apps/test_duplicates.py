"""`wcl duplicates` on copies that the tests make, and as a command."""

import csv
import json
import os
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps

import wcl
from images import flat_folder, picture
from wcl.apps.duplicates import candidates, threshold_in_gap
from wcl.cli import run_command


def names(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_copies_of_all_kinds_are_found_and_nothing_else(run: Path, with_copies: Path) -> None:
    with Image.open(with_copies / "5.jpg") as image:
        ImageOps.mirror(image).save(with_copies / "5 mirrored.jpg", quality=90)
        image.crop((5, 3, 125, 90)).save(with_copies / "5 cropped.png")
    larger, smaller = wcl.duplicates(run, with_copies)
    assert names(larger.paths) == ["3 again.jpg", "3 copy.jpg", "3 small.png", "3.jpg"]
    assert names(smaller.paths) == ["5 cropped.png", "5 mirrored.jpg", "5.jpg"]
    for group in (larger, smaller):
        assert group.similarity == min(group.similarities) > 0.94
        assert len(group.indices) == len(group.paths)
    [equal] = wcl.duplicates(run, with_copies, 1.0)
    assert names(equal.paths) == ["3 copy.jpg", "3.jpg"]


def test_pairs_to_compare_are_the_neighbors_by_features_and_by_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 8, generator=generator)
    pixels = torch.randint(256, (40, 3, 32, 32), generator=generator).byte()
    pixels[7] = pixels[3].flip(-1)
    pixels[9] = pixels[4]
    pairs = candidates(features, pixels, torch.device("cpu"))
    assert pairs.unique(dim=0).equal(pairs) and (pairs[:, 0] < pairs[:, 1]).all()
    found = {(i, j) for i, j in pairs.tolist()}
    assert {(3, 7), (4, 9)} <= found
    cosine = torch.nn.functional.cosine_similarity(features[:, None], features, dim=2)
    for row, near in enumerate(cosine.fill_diagonal_(-2).topk(10).indices.tolist()):
        assert {(min(row, i), max(row, i)) for i in near} <= found
    assert candidates(features[:1], pixels[:1], torch.device("cpu")).shape == (0, 2)


@pytest.mark.parametrize(
    ("similarity", "threshold"),
    [([0.2, 0.99], 0.91), ([0.2, 0.885, 0.93, 0.99], 0.9075), ([0.92], 0.9), ([], 0.91)],
)
def test_the_threshold_is_in_the_widest_gap(similarity: list[float], threshold: float) -> None:
    assert threshold_in_gap(torch.tensor(similarity)) == pytest.approx(threshold)


def test_the_command_prints_a_summary_and_writes_all_groups(
    run: Path,
    with_copies: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    common = ["duplicates", str(run), "--data", str(with_copies)]
    assert run_command([*common, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], len(found["groups"])) == (13, 1)
    assert 0.88 <= found["threshold"] <= 0.94
    assert list(here.iterdir()) == []
    assert run_command(common) == 0
    first, header, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("1 group with 4 of 13 images, the largest with 4; similarity 0.")
    assert header.split() == ["group", "similarity", "path"]
    assert last == "wrote duplicates.csv with all groups, and duplicates.png"
    assert Image.open(here / "duplicates.png").format == "PNG"
    with (here / "duplicates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == found["groups"][0]["paths"]
    assert [float(row["similarity"]) for row in rows] == pytest.approx(
        found["groups"][0]["similarities"], abs=1e-4
    )
    assert run_command([*common, "--out", "mine.csv"]) == 0
    assert {"mine.csv", "mine.png"} <= {path.name for path in here.iterdir()}


def test_only_the_largest_groups_are_printed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs").mkdir()
    for i in range(12):
        for copy in range(12 if i == 5 else 2):
            picture(i).save(tmp_path / "pairs" / f"{i:02}-{copy:02}.png")
    assert run_command(["duplicates", str(run), "--data", "pairs"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("12 groups with 34 of 34 images, the largest with 12;")
    assert "    1  … and 4 more\n" in printed
    assert "… and 2 more groups\n" in printed
    assert len((tmp_path / "duplicates.csv").read_text().splitlines()) == 35


def test_no_duplicates_is_a_friendly_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = flat_folder(tmp_path / "flat", 3)
    monkeypatch.chdir(tmp_path)
    assert run_command(["duplicates", str(run), "--data", str(data), "--threshold", "1"]) == 0
    assert capsys.readouterr().out == "no two of 3 images reach a similarity of 1.0\n"
    assert not (tmp_path / "duplicates.csv").exists()


def test_unreadable_images_and_names_of_any_kind_are_no_trouble(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "data"
    root.mkdir()
    for name in (b"a\nb, c.png", b'say "x".png', b"caf\xe9.png"):
        picture(1).save(root / os.fsdecode(name))
    (root / "broken.png").write_bytes(b"")
    common = ["duplicates", str(run), "--data", str(root)]
    assert run_command([*common, "--out", "d.csv"]) == 0
    assert "a\\nb, c.png" in capsys.readouterr().out
    with Path("d.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 4
    assert run_command([*common, "--json"]) == 0
    [group] = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["paths"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "-1"], "--threshold: must be between 0 and 1"),
        (["--threshold", "1.5"], "--threshold: must be between 0 and 1"),
        (["--threshold", ".nan"], "--threshold: must be"),
        (["--out", "good.csv"], "good.png: exists already"),
        (["--out", "groups.png"], "must be a .csv file"),
        (["--out", "link.csv"], "link.png: a broken link"),
        (["--data", ""], "--data: no such data"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str],
    message: str,
    run: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    picture(1).save(tmp_path / "good.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "gone" / "picture.png")
    before = set(tmp_path.rglob("*"))
    assert run_command(["duplicates", str(run), "--data", str(data), *words]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before
