"""Runs that are killed again and again end as the undisturbed one, bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import DIGITS, finish, lines_of, start, wait_for_lines

from runs import checkpoint

HARNESS = Path(__file__).with_name("harness.py")


def kill_again_and_again(folder: Path, seed: int, kills: int, run: str) -> str:
    """The harness in a process of its own; what it said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HARNESS), str(folder), str(seed), str(kills), run]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    assert f"{run}: killed {kills} times" in done.stdout
    return done.stdout


@pytest.mark.parametrize(("run", "kills"), [("digits", 5), ("photos", 2)])
def test_a_run_that_is_killed_ends_the_same(run: str, kills: int, tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 0, kills, run)


@pytest.mark.soak
@pytest.mark.parametrize(("run", "kills"), [("digits", 120), ("photos", 60), ("two processes", 20)])
def test_a_run_that_is_killed_very_often_ends_the_same(
    run: str, kills: int, tmp_path: Path
) -> None:
    """From `WCL_FAULTS_SEED`."""
    print(kill_again_and_again(tmp_path, int(os.environ.get("WCL_FAULTS_SEED", "1")), kills, run))


def test_a_run_whose_terminal_goes_away_saves_itself(tmp_path: Path) -> None:
    """Ctrl-C is another matter: a terminal that is closed cannot be written to any more."""
    out = tmp_path / "run"
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "wcl", "pretrain", *DIGITS, "--epochs=500", f"--out={out}"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    wait_for_lines(out, 2)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 130
    step = checkpoint(out)["step"]
    assert lines_of(out) == step + step // 4  # one of each step and of each epoch


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGXCPU])
def test_a_run_that_is_stopped_before_its_first_step_says_so_by_its_status(
    number: signal.Signals, tmp_path: Path
) -> None:
    """While torch is still being imported, which takes a second or more."""
    process = start(["pretrain", *DIGITS, f"--out={tmp_path / 'run'}"])
    until = time.monotonic() + 60
    while not is_caught(process.pid, number):
        assert process.poll() is None and time.monotonic() < until, "nobody listens"
        time.sleep(0.005)
    process.send_signal(number)
    assert finish(process) == (130, "wcl: interrupted\n")
    assert not (tmp_path / "run").exists()


def is_caught(process: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for that signal."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
