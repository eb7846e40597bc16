"""The table `semi` with lists of labeled images instead of draws."""

import json
from pathlib import Path

import pytest

from wcl.cli import run_command
from wcl.config import ReproduceConfig
from wcl.paper.label_lists import LabelList, check_lists, label_lists, labels_note
from wcl.paper.result_store import ResultStore
from wcl.paper.scales import at_scale
from wcl.paper.synthetic import write_smoke_data
from wcl.system.errors import InputError


def write_lists(folder: Path, few: list[str], more: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, images in (("1percent.txt", few), ("10percent.txt", more)):
        (folder / name).write_text("".join(f"{image}\n" for image in images), encoding="utf-8")
    return folder


FEW = [f"class{label}/00.jpg" for label in range(4)]
MORE = [f"class{label}/{image:02d}.jpg" for label in range(4) for image in range(3)]


def test_the_network_is_fine_tuned_on_the_listed_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = write_lists(tmp_path / "lists", FEW, MORE)
    words = ["reproduce", "semi", "--only", "Supervised", "--threads", "1", "--json"]
    words += ["--out", str(tmp_path / "out")]
    assert run_command([*words, "--labels", str(lists)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any("given lists, which are not SimCLR's" in note for note in found["notes"])
    results = [json.loads(file.read_text()) for file in (tmp_path / "out" / "results").iterdir()]
    used = {result["details"]["labels"]: result["details"]["n_train"] for result in results}
    assert used == {str(lists / "1percent.txt"): 4, str(lists / "10percent.txt"): 12}
    assert run_command(words) == 0  # drawn: other results
    found = json.loads(capsys.readouterr().out)
    assert any("drawn from each class" in note for note in found["notes"])
    assert len(list((tmp_path / "out" / "results").iterdir())) == 4


def test_a_result_depends_on_what_is_listed_and_not_on_where(tmp_path: Path) -> None:
    cell = at_scale("semi", "smoke").cells[0]

    def result_file(folder: str, few: list[str]) -> Path:
        lists = label_lists(str(write_lists(tmp_path / folder, few, MORE)), "semi")
        return ResultStore(tmp_path, ReproduceConfig(), {"imagenet": "x"}, lists).result_file(
            cell, 0
        )

    assert result_file("a", FEW) == result_file("b", FEW) != result_file("c", FEW[:3])


def test_a_list_of_other_images_is_refused_before_training(tmp_path: Path) -> None:
    write_smoke_data(tmp_path)
    lists = label_lists(
        str(write_lists(tmp_path / "lists", FEW, [*MORE, "n01440764_10.JPEG"])), "semi"
    )
    with pytest.raises(InputError, match=r"10percent.txt: 1 of its 13 names not found"):
        check_lists(lists, str(tmp_path / "photos"))


def test_the_published_lists_are_recognized() -> None:
    published = {
        "1%": "71e82a48ba78252683ae334c4d019ebd5c6e855b9599c1389fbe83eb9549cf17",
        "10%": "6d09de11e7bdaf5b1f3b1f249b6183695f97310cdd20f0c03e7235b6b9392091",
    }
    lists = {share: LabelList(Path("x"), sha256) for share, sha256 in published.items()}
    assert "published lists, as in the paper" in labels_note(lists)


@pytest.mark.parametrize(
    ("table", "folder", "says"),
    [
        ("semi", "nowhere", "nowhere/1percent.txt: No such file or directory; give a folder with"),
        ("voc", "lists", "--labels: only the table semi uses lists"),
    ],
)
def test_a_mistake_is_one_line(
    table: str,
    folder: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lists(tmp_path / "lists", FEW, MORE)
    assert run_command(["reproduce", table, "--labels", folder]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lists"]
