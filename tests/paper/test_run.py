"""Tables made end to end at the smallest scale: every name, stopping, continuing, mistakes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from images import flat_folder, photo_folder
from runs import assert_same_run, stopped_after
from voc_kit import scenes, voc_kit
from wcl.apps import pretrain
from wcl.cli import run_command
from wcl.config import ReproduceConfig
from wcl.models.encoder import load
from wcl.paper import sources
from wcl.paper.catalog import table
from wcl.paper.listing import seconds_left
from wcl.paper.result_store import ResultStore, seconds_per_epoch, settings_of
from wcl.paper.scales import SCALES, at_scale
from wcl.paper.synthetic import write_smoke_data
from wcl.paper.untrained import write_untrained
from wcl.system.errors import RunError
from wcl.system.run_folder import RunFolder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, so that tables share runs."""
    return tmp_path_factory.mktemp("reproduce") / "out"


def made(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_command(["reproduce", *words, "--threads", "1", "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    found: dict[str, Any] = json.loads(printed)
    return found


def times(folder: Path) -> dict[str, int]:
    """When each result and each run's weights were written."""
    files = [*folder.glob("results/*"), *folder.glob("runs/*/encoder.safetensors")]
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in files}


@pytest.mark.parametrize("name", SCALES["smoke"].tables)
def test_every_table_is_made_at_the_scale_smoke(
    name: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made([name, "--out", str(out)], capsys)
    assert (found["table"], found["scale"], found["failed"]) == (name, "smoke", {})
    cells = at_scale(name, "smoke").cells
    expected = [(cell.row, figure.column) for cell in cells for figure in cell.figures]
    own = [line for line in found["lines"] if not line["published_only"]]
    assert [(line["row"], line["column"]) for line in own] == expected
    # A class of the synthetic kit has too few images for the larger k.
    missing = {"k=16", "k=32", "k=64"}
    # Systems without pairs of images have no figures of them.
    missing |= {"precision", "recall", "conflicting"}
    lines = [line for line in own if line["column"] not in missing]
    assert all(isinstance(line["ours"], float) and line["seeds"] == 1 for line in lines)
    text = (out / f"{name}-smoke.md").read_text()
    for line in found["lines"]:
        assert f"| {line['row']}{' †' * line['published_only']} |" in text
    assert json.loads((out / f"{name}-smoke.json").read_text()) == found
    if name == "tsne":
        pictures = sorted(out.glob("maps/*.png"))
        assert len(pictures) == 2


def test_few_labels_are_compared_with_baselines(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = made(["voc", "--out", str(out)], capsys)["lines"]
    found = {(line["row"], line["column"]): line for line in lines}
    for row in ("Random", "Supervised, 90 epochs", "SimCLR, 200 epochs", "WCL, 200 epochs"):
        for column in ("k=1", "k=8", "all"):
            best = found[f"{row}, best on test", column]
            assert best["ours"] >= found[row, column]["ours"] > 0
    wcl, simclr = (found[f"{name}, 200 epochs", "all"] for name in ("WCL", "SimCLR"))
    assert wcl["gain"] == pytest.approx(wcl["ours"] - simclr["ours"])
    encoders = [load(file) for file in out.glob("runs/imagenet*/encoder.safetensors")]
    assert {encoder.description.epoch for encoder in encoders} == {0, 2}


def test_the_untrained_network_is_that_of_the_seed(tmp_path: Path) -> None:
    cell = next(cell for cell in at_scale("voc", "smoke").cells if cell.row == "Random")
    write_smoke_data(tmp_path)
    config = settings_of(cell.run, 3, str(tmp_path / "photos"), ReproduceConfig())
    names = ("a", "b", "c")
    for name, seed in zip(names, (3, 3, 4), strict=True):
        write_untrained(dataclasses.replace(config, seed=seed), RunFolder(tmp_path / name))
    first, same, other = (load(tmp_path / name).described()["sha256"] for name in names)
    assert first == same != other


def test_what_is_done_is_not_done_again(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = made(["semi", "--out", str(out)], capsys)
    before = times(out)
    assert made(["semi", "--out", str(out)], capsys) == first
    assert times(out) == before


def test_cells_with_a_run_in_common_share_it(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of `semi` fine-tunes the run that `imagenet` probes and `voc` trains SVMs on."""
    made(["semi", "--out", str(out)], capsys)
    runs = {file.name for file in out.glob("runs/imagenet-800ep-wcl-*")}
    made(["voc", "--out", str(out), "--only", "800"], capsys)
    assert {file.name for file in out.glob("runs/imagenet-800ep-wcl-*")} == runs


def test_a_table_that_was_stopped_goes_on_to_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mechanisms", "--only", "without the swap", "--out"]
    whole = made([*words, str(tmp_path / "whole")], capsys)
    command = ["reproduce", *words, str(tmp_path / "parts"), "--threads", "1", "--json"]
    with stopped_after(5, monkeypatch):
        assert run_command(command) == 130
    captured = capsys.readouterr()
    assert "run the same command to continue" in captured.err
    assert "wcl pretrain" not in captured.err  # one way to go on, not two
    assert [line["ours"] for line in json.loads(captured.out)["lines"]] == [None] * 6
    assert made([*words, str(tmp_path / "parts")], capsys) == whole
    for run in (tmp_path / "whole" / "runs").iterdir():
        assert_same_run(run, tmp_path / "parts" / "runs" / run.name)


def test_a_run_that_ended_before_anything_was_saved_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mechanisms", "--only", "batch 512", "--out", str(tmp_path / "out")]
    whole = made(words, capsys)
    lost = next((tmp_path / "out" / "runs").glob("digits-wcl-*"))
    for file in (*lost.glob("checkpoints/*"), *lost.glob("encoder*")):
        file.unlink()
    for result in (tmp_path / "out" / "results").glob(f"{lost.name}*"):
        result.unlink()
    assert made(words, capsys) == whole


@pytest.mark.parametrize("content", ["", "a: ["])
def test_a_run_whose_settings_were_lost_is_named(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was not finished, and is to go on."""
    cell = at_scale("mechanisms", "smoke").cells[0]
    places = {"digits": "digits"}
    run = ResultStore(tmp_path / "out", ReproduceConfig(), places).run_folder(cell.run, 0)
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(content)
    (tmp_path / "out" / "reproduce.json").write_text("{}")
    words = ["reproduce", "mechanisms", "--only", "swap", "--out", str(tmp_path / "out")]
    assert run_command(words) == 2
    assert str(run / "config.yaml") in capsys.readouterr().err


def test_rows_that_were_made_before_stay_in_the_table(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made(["mechanisms", "--out", str(out)], capsys)
    assert made(["mechanisms", "--only", "batch 512", "--out", str(out)], capsys) == whole


def test_rows_of_another_data_set_stay_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cifar", "--out", str(tmp_path / "out"), "--only"]
    made([*words, "SimCLR, batch 64 + CIFAR-100, 100 epochs"], capsys)
    both = made([*words, "SimCLR, batch 64 + CIFAR-10, 100 epochs"], capsys)
    there = {line["column"] for line in both["lines"] if line["ours"] is not None}
    assert there >= {"CIFAR-10, 100 epochs", "CIFAR-100, 100 epochs"}


def test_data_of_other_rows_may_be_given_and_are_not_asked_for() -> None:
    data = "cifar10=digits,cifar100=hf:a/b"
    assert sources.given(["cifar10"], data, ["cifar10", "cifar100"])["cifar100"] == "hf:a/b"
    assert sources.given(["voc"], "voc=hf:a/b", ["voc", "imagenet"]) == {"voc": "hf:a/b"}


def test_a_run_that_another_command_has_begun_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mechanisms", "--only", "batch 512", "--out", str(tmp_path / "out")]
    made(words, capsys)
    begun = next((tmp_path / "out" / "runs").glob("digits-wcl-*"))
    for file in (*begun.glob("checkpoints/*"), *begun.glob("encoder*")):
        file.unlink()
    for result in (tmp_path / "out" / "results").glob(f"{begun.name}*"):
        result.unlink()
    before = sorted(begun.iterdir())
    with RunFolder(begun).locked():
        assert run_command(["reproduce", *words]) == 2
    assert "another process is training into it" in capsys.readouterr().err
    assert sorted(begun.iterdir()) == before


def test_a_cell_that_fails_is_named_and_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pretrain.run

    def diverging(config: Any, *others: Any, **options: Any) -> bool:
        if config.method == "simclr":
            raise RunError("step 3: the loss is not finite")
        return run(config, *others, **options)

    monkeypatch.setattr(pretrain, "run", diverging)
    words = ["reproduce", "mechanisms", "--only", "batch 512", "--out", str(tmp_path / "out")]
    assert run_command([*words, "--threads", "1", "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    which = "SimCLR, batch 512: 1 label, 3 labels, 10 labels; seed 0"
    assert found["failed"] == {which: "step 3: the loss is not finite"}
    assert [line["ours"] is None for line in found["lines"]] == [True] * 3 + [False] * 3
    assert "1 of 2 cells failed" in captured.err


def test_another_setting_or_seed_is_another_cell_and_another_machine_is_not(tmp_path: Path) -> None:
    def places(seed: int = 0, data: str = "digits", **options: Any) -> tuple[Path, Path]:
        store = ResultStore(tmp_path, ReproduceConfig(**options), {"digits": data})
        return store.run_folder(cell.run, seed), store.result_file(cell, seed)

    cell, other = at_scale("mechanisms", "digits").cells[1:3]
    plain = places()
    assert places(threads=3, num_workers=2, device="cpu", devices=4) == plain
    for changed in (places(1), places(data="/other"), places(precision="bf16-mixed")):
        assert changed[0] != plain[0]
        assert changed[1] != plain[1]
    store = ResultStore(tmp_path, ReproduceConfig(), {"digits": "digits"})
    assert store.run_folder(other.run, 0) != plain[0]


def test_several_seeds_are_a_mean_of_different_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["mechanisms", "--only", "batch 512", "--out", str(tmp_path / "out")]
    both = made([*words, "--seeds", "2"], capsys)
    one = made([*words, "--seeds", "1"], capsys)
    assert all(line["seeds"] == 2 and line["ours_deviation"] > 0 for line in both["lines"])
    assert one["lines"][0]["ours"] != both["lines"][0]["ours"]
    assert one["lines"][0]["ours_deviation"] is None


def test_the_time_of_an_epoch_is_the_median_with_the_search(tmp_path: Path) -> None:
    seconds = enumerate((9.0, 2.0, 4.0), 1)
    epochs = [
        {"kind": "epoch", "step": n, "epoch": n, "seconds": s, "search_seconds": 1.0}
        for n, s in seconds
    ]
    lines = [{"kind": "step", "step": 1, "epoch": 1}, *epochs]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert seconds_per_epoch(tmp_path) == 5.0


def test_the_list_names_cells_data_and_times_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["mechanisms", "--scale", "digits", "--only", "swap", "--out", str(out), "--list"]
    found = made(words, capsys)
    assert not out.exists()
    assert [cell["row"] for cell in found["cells"]] == ["SimCLR", "without the swap"]
    for cell in found["cells"]:
        assert (cell["data"], cell["done"], len(cell["runs"])) == (["digits"], 0, 5)
        assert cell["seconds"] > 0
    each = [cell["seconds"] for cell in found["cells"]]
    assert found["estimated_seconds_left"] == pytest.approx(5 * sum(each))
    assert run_command(["reproduce", *words]) == 0
    printed = capsys.readouterr().out
    assert "estimated from a few steps on this machine" in printed
    assert "digits: handwritten digits" in printed


def test_the_time_left_counts_a_shared_run_once_and_what_is_done_not_at_all() -> None:
    lines = [
        {"runs": ["a0", "a1"], "done": 1, "seconds": 10.0},
        {"runs": ["a0", "a1"], "done": 0, "seconds": 10.0},
        {"runs": ["b0", "b1"], "done": 2, "seconds": 7.0},
    ]
    assert seconds_left(lines) == 20.0


def test_the_paper_s_data_are_found_by_their_names(tmp_path: Path) -> None:
    photos = photo_folder(tmp_path / "photos")
    kit = voc_kit(tmp_path / "a,b=c", {"trainval": scenes(6), "test": scenes(6, 6)})
    names = sources.needed(table("voc").cells)
    assert names == ["imagenet", "voc"]
    found = sources.given(names, f"imagenet={photos},voc={kit}")
    assert found == {"imagenet": str(photos), "voc": str(kit)}
    sources.check(names, found)
    assert sources.given(["cifar10"], "") == {"cifar10": "cifar10"}
    assert sources.given(["imagenet"], str(kit)) == {"imagenet": str(kit)}


def test_settings_of_the_machine_reach_the_runs() -> None:
    run = table("imagenet").cells[0].run
    config = ReproduceConfig(devices=8, precision="bf16-mixed", micro_batch_size=512, threads=2)
    provenance = settings_of(run, 3, "x", config)
    assert (provenance.devices, provenance.precision, provenance.micro_batch_size) == (
        8,
        "bf16-mixed",
        512,
    )
    assert (provenance.threads, provenance.seed, provenance.data) == (2, 3, "x")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["headz"], "headz: no such table (did you mean heads?); there are cifar, heads"),
        ([], "missing: table, one of"),
        (["heads", "--scale", "tiny"], "--scale: tiny is not one of smoke, digits, cpu, paper"),
        (["semi", "--scale", "digits"], "--scale: semi has no scale digits; it has smoke, cpu"),
        (["mechanisms", "--scale", "paper"], "it has smoke, digits, cpu"),
        (["heads", "--data", "digits"], "--data: the scale smoke makes its own images"),
        (["heads", "--seeds", "-1"], "--seeds: must be at least 0"),
        (["heads", "--only", "three"], "--only: no row or column of heads contains 'three'"),
        (["heads", "--scale", "paper"], "--data: is missing; give --data SRC: ImageNet-1k (image"),
        (
            ["voc", "--scale", "paper", "--data", "x"],
            "name the data set, as in --data imagenet=SRC,v",
        ),
        (
            ["voc", "--scale", "paper", "--data", "imagenet=flat"],
            "flat has no labels; expected Image",
        ),
        (
            ["heads", "--scale", "paper", "--data", "voc=x"],
            "--data: voc is not used here; give im",
        ),
        (["heads", "--scale", "paper", "--data", "nowhere"], "nowhere: no such data"),
        (["heads", "--out", "flat"], "flat: holds other files; choose a new folder with --out"),
        (["heads", "--out", "flat/0.png"], "flat/0.png: holds other files"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_leaves_nothing(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    flat_folder(tmp_path / "flat", 3)
    assert run_command(["reproduce", *words]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["flat"]
    assert len(list((tmp_path / "flat").iterdir())) == 3
