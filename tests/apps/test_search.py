"""`wcl search` and `wcl duplicates` against naive search, and as a person meets them."""

import json
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import wcl
from images import flat_folder, photo_folder, picture
from runs import photo_run
from wcl.cli import run_command
from wcl.neighbors import groups
from wcl.neighbors.groups import linked_groups
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_folder(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(data, tmp_path_factory.mktemp("runs") / "photos", epochs=4)


@pytest.fixture
def with_copies(tmp_path: Path) -> Path:
    """Ten pictures; one of them also as an exact copy, resized and recompressed."""
    root = tmp_path / "library"
    root.mkdir()
    for i in range(10):
        picture(i, 96, 128).save(root / f"{i}.jpg", quality=95)
    (root / "3 copy.jpg").write_bytes((root / "3.jpg").read_bytes())
    with Image.open(root / "3.jpg") as image:
        image.resize((96, 72), Image.Resampling.BICUBIC).save(root / "3 small.png")
        image.save(root / "3 again.jpg", quality=70)
    return root


def disjoint_sets(features: torch.Tensor, threshold: float) -> list[set[int]]:
    """Groups of at least two, by comparing every pair."""
    unit = F.normalize(features.double(), dim=1)
    sets = [{i} for i in range(len(features))]
    for i in range(len(features)):
        for j in range(i):
            if float(unit[i] @ unit[j]) >= threshold and sets[i] is not sets[j]:
                sets[i] |= sets[j]
                for member in sets[j]:
                    sets[member] = sets[i]
    return [group for i, group in enumerate(sets) if len(group) > 1 and min(group) == i]


def test_neighbors_are_those_of_a_naive_sort(data: Path, run: Path, tmp_path: Path) -> None:
    query = tmp_path / "query.png"
    picture(5000).save(query)
    encoder = wcl.load(run)
    paths = [str(path) for path in sorted(data.rglob("*.jpg"))]
    cosine = F.cosine_similarity(encoder.embed(query), encoder.embed(paths))
    [found] = wcl.search(run, data, query, k=5)
    assert found.query == str(query)
    order = cosine.argsort(descending=True)[:5]
    assert [image.path for image in found.neighbors] == [paths[i] for i in order]
    assert [image.index for image in found.neighbors] == order.tolist()
    expected = pytest.approx(cosine[order].tolist(), abs=1e-5)
    assert [image.cosine for image in found.neighbors] == expected


def test_a_query_is_not_its_own_neighbor_but_a_copy_of_it_is(
    run: Path, with_copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(with_copies)
    for query in (with_copies / "3.jpg", Path("3.jpg"), Path("../library/3.jpg")):
        [found] = wcl.search(run, with_copies, query, k=3)
        assert {Path(image.path).name for image in found.neighbors} == {
            "3 copy.jpg",
            "3 small.png",
            "3 again.jpg",
        }
        assert found.neighbors[0].cosine == pytest.approx(1, abs=1e-5)
        assert found.neighbors[0].cosine <= 1


def test_more_neighbors_than_images_are_all_of_them(data: Path, run: Path, tmp_path: Path) -> None:
    picture(1).save(tmp_path / "other.png")
    queries = [tmp_path / "other.png", data / "cat" / "000.jpg"]
    found = wcl.search(run, data, queries, k=1000)
    assert [len(one.neighbors) for one in found] == [24, 23]
    alone = flat_folder(tmp_path / "alone", 1)
    with pytest.raises(InputError, match="no image besides the query"):
        wcl.search(run, alone, alone / "0.png")


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_of_a_disjoint_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(150, 3, generator=generator)
    features[90:100] = features[3]
    # Blocks and the number of links that are kept are small, so that all of it is met.
    monkeypatch.setattr(groups, "_ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(groups, "_COLUMNS_AT_A_TIME", 16)
    monkeypatch.setattr(groups, "_MAX_LINKS", 20)
    for threshold in (0.5, 0.99, 0.998, 1.0):
        labels, highest = linked_groups(features, threshold)
        found = [set((labels == label).nonzero()[0].tolist()) for label in sorted(set(labels))]
        found = [group for group in found if len(group) > 1]
        expected = disjoint_sets(features, threshold - 1e-6)
        assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
        unit = F.normalize(features, dim=1)
        nearest = (unit @ unit.T).fill_diagonal_(-1).amax(dim=1).clamp(max=1)
        reached = nearest >= threshold - 1e-6
        torch.testing.assert_close(highest, torch.where(reached, nearest, -1.0))


def test_thousands_of_equal_rows_are_one_group() -> None:
    labels, highest = linked_groups(torch.ones(5000, 2), 1.0)
    assert set(labels.tolist()) == {0}
    assert (highest > 0.999).all()


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


def test_the_commands_print_tables_and_draw(
    run: Path,
    with_copies: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    common = [str(run), "--data", str(with_copies)]
    query = str(with_copies / "3.jpg")
    for name in ("neighbors.png", "neighbors-2.png", "neighbors-3.png"):
        assert run_command(["search", *common, "--query", query, "-k", "3"]) == 0
        said = capsys.readouterr().out
        assert "rank  cosine  path" in said and "3 copy.jpg" in said
        assert said.endswith(f"wrote {name}\n")
        assert Image.open(here / name).format == "PNG"
    assert run_command(["duplicates", *common, "--threshold", "0.999"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].split() == ["group", "cosine", "path"]
    assert said.endswith("4 of 13 images in 1 group; wrote duplicates.png\n")
    assert Image.open(here / "duplicates.png").format == "PNG"
    assert before == {path: path.read_bytes() for path in before}
    new = {path.relative_to(run).parts[0] for path in run.rglob("*") if path not in before}
    assert new <= {*(path.relative_to(run).parts[0] for path in before), "features"}


def test_json_is_one_object_and_draws_only_where_it_is_told(
    run: Path,
    with_copies: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    common = [str(run), "--data", str(with_copies), "--json"]
    files = [str(with_copies / name) for name in ("1.jpg", "3.jpg")]
    for words in (["--query", ",".join(files)], [f"--query={files[0]}", "--query", files[1]]):
        assert run_command(["search", *common, *words, "--k", "2"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [one["query"] for one in found["queries"]] == files
        assert [len(one["neighbors"]) for one in found["queries"]] == [2, 2]
        assert {"path", "cosine", "index"} == found["queries"][0]["neighbors"][0].keys()
    assert run_command(["duplicates", *common, "--threshold", "0.999"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["threshold"], len(found["groups"])) == (13, 0.999, 1)
    assert list(here.iterdir()) == []
    assert run_command(["duplicates", *common, "--out", "mine.png"]) == 0
    json.loads(capsys.readouterr().out)
    assert [path.name for path in here.iterdir()] == ["mine.png"]


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
        said = capsys.readouterr().err
        assert "hardly tells these images apart" in said
        assert "--threshold" not in said


def test_unreadable_images_and_names_of_any_kind_are_no_trouble(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "data"
    root.mkdir()
    names = [b"a\nb, c.png", b'say "x".png', b"caf\xe9.png"]
    for name in names:
        picture(1).save(root / os.fsdecode(name))
    (root / "broken.png").write_bytes(b"")
    common = [str(run), "--data", str(root)]
    assert run_command(["duplicates", *common, "--out", "d.png"]) == 0
    assert "a\\nb, c.png" in capsys.readouterr().out
    assert run_command(["duplicates", *common, "--json"]) == 0
    [group] = json.loads(capsys.readouterr().out)["groups"]
    assert len(group["paths"]) == 3
    for name in names:
        query = str(root / os.fsdecode(name))
        assert run_command(["search", *common, "--query", query, "--json"]) == 0
        [one] = json.loads(capsys.readouterr().out)["queries"]
        assert len(one["neighbors"]) == 2
        assert run_command(["search", *common, "--query", query]) == 0
        capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["search"], "--query: name an image"),
        (["search", "--query"], "--query: the file is missing"),
        (["search", "--query", "nowhere.jpg"], "nowhere.jpg: no such file"),
        (["search", "--query", "text.jpg"], "text.jpg: not an image"),
        (["search", "--query", "folder"], "folder: a folder; `wcl embed`"),
        (["search", "--query", "good.png", "-k", "0"], "--k: must be at least 1"),
        (["search", "--query", "good.png", "--out", "good.png"], "good.png: exists already"),
        (["search", "--query", "good.png", "--out", "x.gif"], "must be a .png file"),
        (["search", "--query", "good.png", "--data", "no"], "no: no such data"),
        (["duplicates", "--threshold", "0"], "--threshold: must be above 0"),
        (["duplicates", "--threshold", "1.5"], "--threshold: must be above 0"),
        (["duplicates", "--threshold", ".nan"], "--threshold: must be above 0"),
        (["duplicates", "--out", "good.png"], "good.png: exists already"),
        (["duplicates", "--out", "link.png"], "link.png: a link that leads nowhere"),
        (["search", "--query", "good.png", "--out", "link.png"], "a link that leads nowhere"),
        (["duplicates", "--data", ""], "--data: say where"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str],
    says: str,
    run: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    picture(1).save(tmp_path / "good.png")
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.png").symlink_to(tmp_path / "gone" / "picture.png")
    before = set(tmp_path.rglob("*"))
    command, *options = words
    assert run_command([command, str(run), "--data", str(data), *options]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before
