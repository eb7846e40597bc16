"""Races: what is trained, evaluated and continued."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import race as races
from benchmarks.race import ours, race
from benchmarks.race.images import write_images
from benchmarks.race.job import Job
from benchmarks.race.results import accuracy_at, table
from benchmarks.race.snapshots import snapshots_in
from wcl import evaluate
from wcl.data import ArraySource, in_memory, limited, open_splits, with_format
from wcl.models.encoder import load
from wcl.system.errors import InputError

POINTS = {"ours": [(60.0, 0.3), (120.0, 0.5)], "lightly": [(90.0, 0.2), (120.0, 0.4)]}


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace training and evaluation; return the list of what is trained."""
    trained: list[str] = []

    def train(job: Job) -> dict[str, Any]:
        (job.folder / "snapshots").mkdir(parents=True)
        trained.append(f"{job.side} {job.seed}")
        return {"epochs": 1}

    def in_this_process(call: Callable[[Job], Any], job: Job) -> Any:
        return call(job)

    monkeypatch.setattr(races, "_train", train)
    monkeypatch.setattr(races, "_evaluate", lambda job: POINTS[job.side])
    monkeypatch.setattr(races, "_in_new_process", in_this_process)
    return trained


def run_race(out: Path, seeds: int = 2, minutes: float = 2) -> dict[str, float]:
    return race("digits", 40, minutes, seeds, "digits", str(out))


def test_sides_alternate_and_only_what_is_missing_is_trained(
    tmp_path: Path, trainings: list[str]
) -> None:
    figures = run_race(tmp_path)
    assert trainings == ["ours 0", "lightly 0", "ours 1", "lightly 1"]
    assert figures["knn_points_over_lightly"] == pytest.approx(10)
    assert (tmp_path / "race.png").stat().st_size > 0
    found = json.loads((tmp_path / "ours-0.json").read_text(encoding="utf-8"))
    assert found["points"] == [list(point) for point in POINTS["ours"]]

    trainings.clear()
    (tmp_path / "ours-1.json").unlink()  # stopped while it was evaluated
    (tmp_path / "ours-1" / "snapshots").mkdir()
    (tmp_path / "lightly-1.json").unlink()  # stopped while it was trained
    (tmp_path / "lightly-1" / "trained.json").unlink()
    assert run_race(tmp_path, seeds=3) == figures
    assert trainings == ["lightly 1", "ours 2", "lightly 2"]


def test_another_race_needs_another_folder(tmp_path: Path, trainings: list[str]) -> None:
    run_race(tmp_path, seeds=1)
    with pytest.raises(InputError, match="--minutes"):
        run_race(tmp_path, seeds=1, minutes=3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("seeds", 0), ("images", -1), ("minutes", 0), ("minutes", math.nan), ("recipe", "none")],
)
def test_a_race_that_cannot_be_is_refused_and_leaves_no_trace(
    setting: str, value: Any, tmp_path: Path
) -> None:
    out = tmp_path / "race"
    given = {"images": 40, "minutes": 2, "seeds": 1, "recipe": "digits", setting: value}
    with pytest.raises(InputError, match=setting):
        race(data="digits", out=str(out), **given)
    assert not out.exists()


def test_accuracy_between_snapshots_is_linear() -> None:
    points = [(30.0, 0.2), (60.0, 0.4)]
    assert [accuracy_at(points, minutes) for minutes in (0.75, 1, 2)] == pytest.approx(
        [0.3, 0.4, 0.4]
    )


def test_the_table_has_means_and_deviations_of_the_seeds() -> None:
    results: list[dict[str, Any]] = [{"side": "ours", "points": [(60, 0.3), (120, 0.5)]}]
    results += [{"side": "ours", "points": [(60, 0.4), (120, 0.7)]}]
    results += [{"side": "lightly", "points": [(90, 0.1), (120, 0.4)]}]
    _, ours_row, lightly_row = table(results, 2, "a race").splitlines()[-3:]
    cells = [cell.strip() for cell in ours_row.split("|")[2:-1]]
    assert cells == ["–", "35.0 ± 7.1", "47.5 ± 10.6", "60.0 ± 14.1", "50.0, 70.0", "2.00 min"]
    assert [cell.strip() for cell in lightly_row.split("|")[2:6]] == ["–", "–", "10.0", "40.0"]


def pixels_and_labels(source: Any) -> tuple[Tensor, Tensor]:
    loaded = with_format(in_memory(source), 3)
    assert isinstance(loaded, ArraySource) and loaded.labels is not None
    return loaded.pixels, loaded.labels


def test_the_images_of_a_race_are_some_of_the_training_split_and_the_test_split(
    tmp_path: Path,
) -> None:
    write_images("digits", 40, tmp_path)
    train, test = open_splits("digits")
    expected = limited(train, 40, seed=0), test
    for written, given in zip(open_splits(str(tmp_path)), expected, strict=True):
        for ours_, theirs in zip(pixels_and_labels(written), pixels_and_labels(given), strict=True):
            torch.testing.assert_close(ours_, theirs)


def job(out: Path, side: Any) -> Job:
    made = Job(out, side, 0, "cifar10-cpu", 0.05)
    write_images("digits", 256, out / "images")
    return made


def test_our_last_snapshot_is_the_encoder_of_the_run(tmp_path: Path) -> None:
    run = job(tmp_path, "ours")
    facts = ours.train(run)
    assert facts["epochs"] >= 1
    last = snapshots_in(run.folder / "snapshots")[-1][1]
    whole = load(run.folder / "run").backbone.state_dict()
    for name, value in load(last).backbone.state_dict().items():
        assert torch.equal(value, whole[name])
    (_, accuracy), *_ = races._evaluate(run)
    assert accuracy == evaluate(last, "knn", run.images, references=False).top1


def test_lightly_trains_the_network_of_our_recipe_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightly", reason="needs lightly, of the extra bench")
    from benchmarks import lightly_simclr
    from benchmarks.race import lightly

    monkeypatch.setattr(lightly_simclr, "_WORKERS", (0,))
    run = job(tmp_path, "lightly")
    facts = lightly.train(run)
    assert facts["epochs"] > 0
    ((seconds, last),) = snapshots_in(run.folder / "snapshots")
    assert seconds >= 60 * run.minutes
    trained, config = load(last), ours.run_config(run)
    assert trained.description.model == config.model
    untrained = lightly._encoder(run).backbone.state_dict()
    state = trained.backbone.state_dict()
    assert any(not torch.equal(state[name], untrained[name]) for name in state)
    assert 0 <= races._evaluate(run)[0][1] <= 1


def epochs_with_a_worker(job: Job) -> Any:
    from benchmarks import lightly_simclr
    from benchmarks.race import lightly

    lightly_simclr._WORKERS = (1,)
    return lightly.train(job)["epochs"]


def test_lightlys_workers_start_in_a_process_of_a_race(tmp_path: Path) -> None:
    pytest.importorskip("lightly", reason="needs lightly, of the extra bench")
    assert races._in_new_process(epochs_with_a_worker, job(tmp_path, "lightly")) > 0


def test_without_lightly_nothing_is_raced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.__main__ import main

    monkeypatch.setitem(sys.modules, "lightly", None)  # an import fails
    main(["peers", "--json", "--data", "digits", "--out", str(tmp_path / "race")])
    assert json.loads(capsys.readouterr().out)["knn_points_over_lightly"] is None
    assert not (tmp_path / "race").exists()


def test_arguments_of_the_race_belong_to_peers_alone() -> None:
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit):
        main(["maps", "--seeds", "1"])
