"""`wcl search` against a naive sort, and as a command."""

import json
import os
from pathlib import Path

import pytest
import torch.nn.functional as F
from PIL import Image

import wcl
from images import flat_folder, picture
from wcl.cli import run_command
from wcl.system.errors import InputError


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
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    words = ["search", str(run), "--data", str(with_copies), "--query", str(with_copies / "3.jpg")]
    for name in ("neighbors.png", "neighbors-2.png", "neighbors-3.png"):
        assert run_command([*words, "-k", "3"]) == 0
        printed = capsys.readouterr().out
        assert "rank  cosine  path" in printed and "3 copy.jpg" in printed
        assert printed.endswith(f"wrote {name}\n")
        assert Image.open(here / name).format == "PNG"
    assert before == {path: path.read_bytes() for path in before}
    new = {path.relative_to(run).parts[0] for path in run.rglob("*") if path not in before}
    assert new <= {*(path.relative_to(run).parts[0] for path in before), "features"}


def test_json_is_one_object_and_draws_only_on_request(
    run: Path,
    with_copies: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    common = ["search", str(run), "--data", str(with_copies), "--json", "--k", "2"]
    files = [str(with_copies / name) for name in ("1.jpg", "3.jpg")]
    for words in (["--query", ",".join(files)], [f"--query={files[0]}", "--query", files[1]]):
        assert run_command([*common, *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert [one["query"] for one in found["queries"]] == files
        assert [len(one["neighbors"]) for one in found["queries"]] == [2, 2]
        assert {"path", "cosine", "index"} == found["queries"][0]["neighbors"][0].keys()
    assert list(here.iterdir()) == []
    assert run_command([*common, "--query", files[0], "--out", "mine.png"]) == 0
    json.loads(capsys.readouterr().out)
    assert [path.name for path in here.iterdir()] == ["mine.png"]


def test_names_of_any_kind_can_be_queries(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "data"
    root.mkdir()
    names = [b"a\nb, c.png", b'say "x".png', b"caf\xe9.png"]
    for name in names:
        picture(1).save(root / os.fsdecode(name))
    (root / "broken.png").write_bytes(b"")
    for name in names:
        words = ["search", str(run), "--data", str(root), "--query", str(root / os.fsdecode(name))]
        assert run_command([*words, "--json"]) == 0
        [one] = json.loads(capsys.readouterr().out)["queries"]
        assert len(one["neighbors"]) == 2
        assert run_command(words) == 0
        capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--query: name an image"),
        (["--query"], "--query: its value is missing"),
        (["--query", "nowhere.jpg"], "nowhere.jpg: no such file"),
        (["--query", "text.jpg"], "text.jpg: not an image"),
        (["--query", "folder"], "folder: a folder; `wcl embed`"),
        (["--query", "good.png", "-k", "0"], "--k: must be at least 1"),
        (["--query", "good.png", "--out", "good.png"], "good.png: exists already"),
        (["--query", "good.png", "--out", "x.gif"], "must be a .png file"),
        (["--query", "good.png", "--data", "no"], "no: no such data"),
        (["--query", "good.png", "--out", "link.png"], "a broken link"),
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
    (tmp_path / "text.jpg").write_text("no picture")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.png").symlink_to(tmp_path / "gone" / "picture.png")
    before = set(tmp_path.rglob("*"))
    assert run_command(["search", str(run), "--data", str(data), *words]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before
