"""No damaged file makes a reader crash, hang, eat memory or raise what it may not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def fuzz(folder: Path, seed: int, cases: int) -> str:
    """In a process of its own, which may die of it; what it said."""
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(RUN), str(seed), str(cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    last = "".join(path.read_text() for path in folder.glob("*/progress"))
    assert done.returncode == 0, f"{last}: {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    said = fuzz(tmp_path, seed=0, cases=30)
    assert said.count("30 cases") == len(said.splitlines()) >= 16


@pytest.mark.soak
def test_thousands_of_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    """`WCL_FUZZ_CASES` of each kind, from `WCL_FUZZ_SEED`."""
    cases = int(os.environ.get("WCL_FUZZ_CASES", "2000"))
    print(fuzz(tmp_path, int(os.environ.get("WCL_FUZZ_SEED", "1")), cases))
