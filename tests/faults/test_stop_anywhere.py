"""Runs that are killed again and again end as the undisturbed one, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
