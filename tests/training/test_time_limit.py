"""Runs for a fixed time: how many epochs they have, and that nothing else is special about them."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import wcl
from runs import CROPS, TINY, assert_same_run, metrics, stopped_after
from together import together
from wcl.apps.pretrain import run_with_verdict
from wcl.config.layering import settings
from wcl.distributed.world import World
from wcl.methods import method_settings
from wcl.system.errors import InputError
from wcl.training import loop
from wcl.training.monitor import Monitor
from wcl.training.monitor.stopwatch import Stopwatch
from wcl.training.setup import TrainingSetup, prepare
from wcl.training.time_limit import plan_epochs, settle_epochs

STEPS = 4  # in an epoch of a tiny run
EPOCH = 1000.0  # seconds of an epoch, much more than the tests take
MINUTES = 5.5 * EPOCH / 60
EPOCHS = 6  # the first one, which really takes a moment, and 5 that fit into the time left then
PLANNED = 7
WARMUP = 2.33  # a third of those planned
UNTIMED = {name: value for name, value in TINY.items() if name != "epochs"}


def estimate_steps(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have new runs estimate this time of a step; resumed ones do not."""
    monkeypatch.setattr(loop, "check_resources", lambda setup, *_: 0.0 if setup.saved else seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show long epochs, which the estimate takes to be somewhat shorter."""
    estimate_steps(5.4 * EPOCH / PLANNED / STEPS, monkeypatch)
    monkeypatch.setattr(Stopwatch, "seconds", lambda _: EPOCH)


def timed_run(out: Path, **changes: Any) -> Path:
    return wcl.pretrain("digits", **{**UNTIMED, "minutes": MINUTES, "out": str(out), **changes})


def same_run(out: Path, epochs: int = EPOCHS, **changes: Any) -> Path:
    """The run of a number of epochs that a run for a fixed time has to equal."""
    changes |= {"epochs": epochs, "optim__warmup_epochs": WARMUP}
    return wcl.pretrain("digits", **{**UNTIMED, "out": str(out), **changes})


def config_of(run: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    return config


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "simclr"},
        {"crops": CROPS},
        {"method": "moco", "micro_batch_size": 16, "save_every": 4},
    ],
    ids=["simclr", "crops", "micro-batches"],
)
def test_a_run_for_a_fixed_time_is_one_with_that_number_of_epochs(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    timed = timed_run(tmp_path / "timed", **changes)
    assert metrics(timed)[-1]["epoch"] == EPOCHS
    assert_same_run(timed, same_run(tmp_path / "same", **changes))


def test_the_written_config_repeats_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = timed_run(tmp_path / "timed")
    assert f"{EPOCHS} epochs fit into {MINUTES:g} minutes" in capsys.readouterr().err
    config = config_of(timed)
    assert (config["epochs"], config["minutes"]) == (EPOCHS, 0)
    again = wcl.pretrain(config=timed / "config.yaml", out=str(tmp_path / "again"))
    assert_same_run(timed, again)


@pytest.mark.parametrize("steps", [STEPS, STEPS + 1])
def test_a_run_resumes_exactly_and_is_not_measured_again(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("alone", "repeated"):
        with stopped_after(steps, monkeypatch):
            timed_run(tmp_path / name)
    monkeypatch.setattr(Stopwatch, "seconds", lambda _: EPOCH / 10)
    wcl.pretrain(resume=True, out=str(tmp_path / "alone"))
    timed_run(tmp_path / "repeated", resume=True, minutes=10 * MINUTES)
    whole = same_run(tmp_path / "same")
    assert_same_run(tmp_path / "alone", whole)
    assert_same_run(tmp_path / "repeated", whole)


@pytest.mark.parametrize("again", [{}, {"minutes": MINUTES}])
def test_the_time_before_a_stop_in_the_first_epoch_counts(
    again: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with stopped_after(2, monkeypatch):  # a thousand seconds, as the clock has it
        timed_run(out)
    assert (config_of(out)["epochs"], config_of(out)["minutes"]) == (PLANNED, MINUTES)
    wcl.pretrain(resume=True, out=str(out), **again)
    assert_same_run(out, same_run(tmp_path / "same", EPOCHS - 1))


def test_a_run_that_died_in_its_first_epoch_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with stopped_after(2, monkeypatch):
        timed_run(out)
    for checkpoint in (out / "checkpoints").iterdir():
        checkpoint.unlink()
    # The other estimate, and the warm-up that follows from it, must not keep it from resuming.
    estimate_steps(EPOCH / STEPS, monkeypatch)
    for steps in (2, 10**6):
        with stopped_after(steps, monkeypatch):
            wcl.pretrain(resume=True, out=str(out))
    assert metrics(out)[-1]["epoch"] == EPOCHS - 1


def test_epochs_turn_the_time_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epochs in (3, PLANNED):
        out = tmp_path / str(epochs)
        with stopped_after(2, monkeypatch):
            timed_run(out)
        wcl.pretrain(resume=True, out=str(out), epochs=epochs)
        assert metrics(out)[-1]["epoch"] == epochs
        assert config_of(out)["minutes"] == 0


def test_a_time_too_short_for_an_epoch_is_refused_with_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate_steps(EPOCH / 2, monkeypatch)
    minutes = 0.9 * EPOCH / 60
    with pytest.raises(InputError, match=r"minutes.* epoch takes .*limit") as caught:
        timed_run(tmp_path / "run", minutes=minutes)
    assert not (tmp_path / "run").exists()
    found = re.search(r"limit[ =](\d+)", str(caught.value))
    assert found
    limited = timed_run(tmp_path / "run", minutes=minutes, limit=int(found[1]))
    assert [line["epoch"] for line in metrics(limited) if line["kind"] == "epoch"] == [1]


def test_the_verdict_comes_after_the_last_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {**UNTIMED, "minutes": MINUTES, "out": str(tmp_path / "run")}
    assert run_with_verdict(settings("digits", changes, method_settings), False, "digits")
    assert capsys.readouterr().err.count("Is it healthy?") == 1


def _lengths(world: World, folder: Path) -> tuple[int, int, int]:
    """The planned and the settled epochs of a process, and those of its schedule."""
    changes = {**UNTIMED, "minutes": MINUTES, "out": str(folder / "run")}
    config = settings("digits", changes, method_settings)
    setup: TrainingSetup = prepare(config, False, torch.device("cpu"), world)
    monitor = Monitor(setup.folder, config, setup.steps_per_epoch, setup.source, 0, world)
    plan_epochs(setup, (1 + world.rank) * EPOCH / STEPS, world)
    planned = setup.config.epochs
    if world.is_rank_zero:
        setup.folder.path.mkdir()
        setup.folder.config.write_text("epochs: 1\n")
    settle_epochs(setup, (1 + world.rank) * EPOCH, monitor, world)
    return planned, setup.config.epochs, setup.total_steps // setup.steps_per_epoch


def test_processes_follow_the_first(tmp_path: Path) -> None:
    assert together(2, tmp_path, _lengths, tmp_path) == [(5, EPOCHS, EPOCHS)] * 2
