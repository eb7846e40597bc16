"""`wcl cluster` against classes that are easy to tell apart, and as a command."""

import csv
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

import wcl
from images import flat_folder, picture
from wcl.apps.cluster import group_labels
from wcl.cli import run_command
from wcl.neighbors.groups import hierarchy


@pytest.fixture
def variants(tmp_path: Path) -> Path:
    """Three very different pictures, each in eight slightly different brightnesses."""
    root = tmp_path / "variants"
    root.mkdir()
    for i in range(3):
        for level in range(8):
            image = ImageEnhance.Brightness(picture(i, 96, 128)).enhance(1 + level / 50)
            image.save(root / f"{i}-{level}.png")
    return root


def test_as_many_groups_as_pictures_are_the_pictures(run: Path, variants: Path) -> None:
    found = wcl.cluster(run, variants, groups=3)
    members = {frozenset(Path(path).name[0] for path in group.paths) for group in found}
    assert members == {frozenset("0"), frozenset("1"), frozenset("2")}
    encoder = wcl.load(run)
    for group in found:
        unit = F.normalize(encoder.embed(group.paths), dim=1)
        expected = 1 - F.cosine_similarity(unit, unit.mean(dim=0, keepdim=True))
        assert group.distances == sorted(group.distances)
        assert group.distances == pytest.approx(expected.tolist(), abs=1e-4)
        assert group.paths == [str(sorted(variants.iterdir())[i]) for i in group.indices]


def test_the_number_of_groups_is_chosen_or_given() -> None:
    features = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    device = torch.device("cpu")
    counts = [int(level.max()) + 1 for level in hierarchy(features)]
    assert int(group_labels(features, 0, device).max()) + 1 in counts
    for groups in (1, 2, 7, counts[0]):
        assert len(group_labels(features, groups, device).unique()) == groups
    with pytest.raises(wcl.errors.InputError, match=f"at most {counts[0]} for these 200 images"):
        group_labels(features, counts[0] + 1, device)
    for few in (1, 2):
        assert group_labels(features[:few], 0, device).tolist() == [0] * few


def test_the_command_writes_the_group_of_every_image(
    run: Path,
    variants: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (variants / "broken.png").write_bytes(b"")
    common = ["cluster", str(run), "--data", str(variants), "--groups", "3"]
    assert run_command([*common, "--out", "groups.csv"]) == 0
    printed = capsys.readouterr().out
    assert printed == (
        "24 images in 3 groups of 8 to 8 images\n"
        "wrote groups.csv with the group of every image, and groups.png\n"
    )
    with Path("groups.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["path"] for row in rows} == {str(p) for p in variants.glob("?-*.png")}
    assert {row["group"] for row in rows} == {"1", "2", "3"}
    assert all(0 <= float(row["distance"]) <= 1 for row in rows)
    assert Image.open("groups.png").format == "PNG"
    assert run_command([*common, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(group["paths"]) for group in found["groups"]] == [8, 8, 8]
    assert not Path("cluster.csv").exists()


def test_errors_name_flags_on_the_command_line_and_arguments_in_python(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = flat_folder(tmp_path / "flat", 6)
    assert run_command(["cluster", str(run), "--data", str(data), "--groups", "6"]) == 2
    assert "wcl: --groups: must be at most" in capsys.readouterr().err
    for call in (
        lambda: wcl.cluster(run, data, groups=6),
        lambda: wcl.cluster(run, data, groups=-1),
        lambda: wcl.duplicates(run, data, threshold=2),
        lambda: wcl.search(run, data, data / "0.png", k=0),
        lambda: wcl.embed(run, data=data, out="x.txt"),
        lambda: wcl.embed(run, data=data, out="x.csv", split="none"),
        lambda: wcl.write_report(run, data=data, images=1),
        lambda: wcl.pretrain("digits", data="digits", out=tmp_path / "x", optim__lr=-1),
    ):
        with pytest.raises(wcl.errors.InputError) as refused:
            call()
        assert "--" not in str(refused.value)
        assert str(refused.value).split(":")[0] in (
            *("groups", "threshold", "k", "out", "split", "images", "optim__lr"),
        )


def test_a_folder_is_embedded_from_python(run: Path, tmp_path: Path) -> None:
    data = flat_folder(tmp_path / "flat", 3)
    file = wcl.embed(run, data=data, out=tmp_path / "vectors.csv", num_workers=0)
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    expected = wcl.load(run).embed([row["path"] for row in rows])
    found = torch.tensor([[float(row[f"v{i}"]) for i in range(expected.shape[1])] for row in rows])
    torch.testing.assert_close(found, expected)
