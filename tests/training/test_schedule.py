"""Schedules of runs that are resumed with other epochs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import wcl
from runs import TINY, assert_same_run, metrics, stopped_after, tiny_run
from wcl.report.provenance import training_facts
from wcl.report.runs import read_run
from wcl.system.errors import InputError
from wcl.training.optimizers import lr_at
from wcl.training.provenance import read_sessions

STEPS = 4  # an epoch of `tiny_run`


def rates(run: Path) -> dict[int, float]:
    return {line["step"]: line["lr"] for line in metrics(run) if line["kind"] == "step"}


@pytest.mark.parametrize("extension", ["stretch", "restart"])
def test_an_extended_run_that_is_interrupted_equals_one_that_is_not(
    extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a method whose momentum depends on the progress."""
    longer: dict[str, Any] = {"epochs": 4, "optim__extension": extension}
    for name in ("whole", "parts"):
        tiny_run(tmp_path / name, method="byol")
    wcl.pretrain(resume=True, out=tmp_path / "whole", **longer)
    for steps in (1, 3):
        with stopped_after(steps, monkeypatch):
            wcl.pretrain(resume=True, out=tmp_path / "parts", **(longer if steps == 1 else {}))
    wcl.pretrain(resume=True, out=tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert max(rates(tmp_path / "whole")) == 4 * STEPS


def test_a_finished_run_continues_as_if_it_had_always_been_longer(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run")
    before = rates(run)
    wcl.pretrain(resume=True, out=run, epochs=6)
    after = rates(run)
    assert {step: after[step] for step in before} == before
    total, warmup = 6 * STEPS, 3 * STEPS  # ten epochs of warm-up are cut to half the run
    later = {step: lr_at(step - 1, 0.002, warmup, total) for step in range(10, 25, 2)}
    assert {step: after[step] for step in later} == pytest.approx(later)
    assert wcl.load(run).description.epoch == 6
    assert yaml.safe_load((run / "config.yaml").read_text())["epochs"] == 6


def test_a_restarted_cosine_begins_at_the_peak(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", log={"every": 1, "tensorboard": False})
    wcl.pretrain(resume=True, out=run, epochs=4, optim__extension="restart")
    expected = {8 + step: lr_at(step - 1, 0.002, 0, 8) for step in range(1, 9)}
    assert {step: lr for step, lr in rates(run).items() if step > 8} == pytest.approx(expected)
    # A longer one then stretches that cosine.
    wcl.pretrain(resume=True, out=run, epochs=5, optim__extension="stretch")
    assert rates(run)[17] == pytest.approx(lr_at(8, 0.002, 0, 12))


def test_an_unfinished_run_can_be_extended_and_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with stopped_after(5, monkeypatch):
        tiny_run(run, epochs=4)
    for epochs, lost in ((6, ""), (3, "shortened from 6 to 3 epochs at step 6")):
        with stopped_after(1, monkeypatch):
            wcl.pretrain(resume=True, out=run, epochs=epochs)
        assert lost in capsys.readouterr().err
    with pytest.raises(InputError, match=r"epochs: 1 are fewer than the 2 .* leave it out"):
        wcl.pretrain(resume=True, out=run, epochs=1)
    wcl.pretrain(resume=True, out=run)
    assert max(rates(run)) == 3 * STEPS


def test_an_extension_is_announced_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    wcl.pretrain(resume=True, out=run, epochs=2)
    said = "extended from 1 to 2 epochs at step 4; --optim.extension stretch"
    assert said in capsys.readouterr().err
    first, second = read_sessions(run / "provenance.json")
    assert not first.extension and second.extension.startswith(said)
    assert said in dict(training_facts(read_run(str(run))))["change of length"]


def test_naming_the_recipe_does_not_extend_a_run(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    unchanged = {name: value for name, value in TINY.items() if name != "epochs"}
    wcl.pretrain("digits", resume=True, out=run, **unchanged)
    assert max(rates(run)) == STEPS
