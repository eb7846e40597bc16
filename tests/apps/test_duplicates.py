"""`wcl duplicates` against comparing every pair, and as a command."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image

import wcl
from images import flat_folder, picture
from naive_groups import disjoint_sets
from wcl.cli import run_command


def test_an_exact_a_resized_and_a_recompressed_copy_are_found(run: Path, with_copies: Path) -> None:
    [group] = wcl.duplicates(run, with_copies, 0.999)
    names = ["3 again.jpg", "3 copy.jpg", "3 small.png", "3.jpg"]
    assert [Path(path).name for path in group.paths] == names
    assert group.similarity == min(group.cosines) >= 0.999
    [equal] = wcl.duplicates(run, with_copies, 1.0)
    assert {"3 copy.jpg", "3.jpg"} <= {Path(path).name for path in equal.paths}


def test_a_larger_group_comes_before_a_more_similar_one(run: Path, tmp_path: Path) -> None:
    root = tmp_path / "library"
    root.mkdir()
    for i in range(2):
        picture(1).save(root / f"equal {i}.png")
    for quality in (50, 70, 95):
        picture(2, 96, 128).save(root / f"alike {quality}.jpg", quality=quality)
    [large, small] = wcl.duplicates(run, root, 0.999)
    assert [len(large.paths), len(small.paths)] == [3, 2]
    assert large.similarity < small.similarity


def test_groups_come_by_size_and_then_by_similarity(run: Path, data: Path) -> None:
    encoder = wcl.load(run)
    paths = [str(path) for path in sorted(data.rglob("*.jpg"))]
    for threshold in (0.9, 0.95, 0.99):
        found = wcl.duplicates(run, data, threshold)
        expected = disjoint_sets(encoder.embed(paths), threshold)
        assert sorted(sorted(g.indices) for g in found) == sorted(map(sorted, expected))
        keys = [(-len(group.paths), -group.similarity) for group in found]
        assert keys == sorted(keys)
        assert all(group.paths == [paths[i] for i in group.indices] for group in found)


def test_the_command_prints_a_table_and_draws(
    run: Path,
    with_copies: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    common = ["duplicates", str(run), "--data", str(with_copies), "--threshold", "0.999"]
    assert run_command([*common, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["threshold"], len(found["groups"])) == (13, 0.999, 1)
    assert list(here.iterdir()) == []
    assert run_command(common) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["group", "cosine", "path"]
    assert printed.endswith("4 of 13 images in 1 group; wrote duplicates.png\n")
    assert Image.open(here / "duplicates.png").format == "PNG"


def test_no_duplicates_is_a_friendly_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = flat_folder(tmp_path / "flat", 3)
    monkeypatch.chdir(tmp_path)
    assert run_command(["duplicates", str(run), "--data", str(data), "--threshold", "1"]) == 0
    assert capsys.readouterr().out == "no two of 3 images reach a cosine of 1.0\n"
    assert not (tmp_path / "duplicates.png").exists()


def test_a_threshold_that_joins_most_images_is_remarked_on(
    run: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["duplicates", str(run), "--data", str(data), "--threshold", "0.01"]) == 0
    assert "--threshold 0.7525" in capsys.readouterr().err


def test_where_no_threshold_can_be_higher_none_is_advised(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "same").mkdir()
    for i in range(5):
        picture(1).save(tmp_path / "same" / f"{i}.png")
    for threshold in ("1", "0.99999"):
        assert (
            run_command(["duplicates", str(run), "--data", "same", "--threshold", threshold]) == 0
        )
        printed = capsys.readouterr().err
        assert "hardly separates these images" in printed
        assert "--threshold" not in printed


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
    assert run_command([*common, "--out", "d.png"]) == 0
    assert "a\\nb, c.png" in capsys.readouterr().out
    assert run_command([*common, "--json"]) == 0
    [group] = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["paths"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threshold", "0"], "--threshold: must be above 0"),
        (["--threshold", "1.5"], "--threshold: must be above 0"),
        (["--threshold", ".nan"], "--threshold: must be"),
        (["--out", "good.png"], "good.png: exists already"),
        (["--out", "link.png"], "link.png: a broken link"),
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
