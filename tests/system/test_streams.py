"""Standard output and error that cannot be written: the status says what became of the command."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from images import photo_folder
from runs import tiny_run

FULL = Path("/dev/full")
on_a_full_device = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
SAID = (
    "wcl: standard output: No space left on device; free some space, then run the command again\n"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


def command(
    *words: str,
    unbuffered: bool = False,
    stdout: int | IO[str] = subprocess.DEVNULL,
    stderr: int | IO[str] = subprocess.PIPE,
    cwd: Path | None = None,
) -> tuple[int, str]:
    """Exit status of `wcl` and what it said on standard error, if that is not elsewhere."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    done = subprocess.run(
        [sys.executable, "-m", "wcl", *words],
        env=environment,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        check=False,
    )
    return done.returncode, (done.stderr or b"").decode()


def reader_gone() -> int:
    """A pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@on_a_full_device
@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("words", ["recipes", "--version", "--help", "data photos"])
def test_a_result_that_cannot_be_written_is_a_failure_in_one_line(
    words: str, unbuffered: bool, tmp_path: Path
) -> None:
    photo_folder(tmp_path / "photos", ("a", "b"), 1)
    with FULL.open("w") as full:
        done = command(*words.split(), unbuffered=unbuffered, stdout=full, cwd=tmp_path)
    assert done == (1, SAID)


@on_a_full_device
def test_an_evaluation_that_cannot_be_written_is_a_failure_in_one_line(run: Path) -> None:
    with FULL.open("w") as full:
        status, said = command("eval", "knn", str(run), "--data", "digits", "--json", stdout=full)
    assert status == 1
    assert said.endswith(SAID)
    assert "Traceback" not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize(
    "words", ["recipes", "--help", "data photos", "eval knn RUN --data digits"]
)
def test_a_reader_that_has_seen_enough_is_no_failure_of_any_command(
    words: str, run: Path, tmp_path: Path
) -> None:
    photo_folder(tmp_path / "photos", ("a", "b"), 1)
    status, said = command(
        *words.replace("RUN", str(run)).split(), stdout=reader_gone(), cwd=tmp_path
    )
    assert status == 0
    assert "wcl: " not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize("nobody", [pytest.param("full", marks=on_a_full_device), "gone"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("data nonexist", 2),
        ("pretrain digits --optim.lr 1e30 --epochs 1 --limit 128 --batch_size 32 --out run", 1),
        ("data digits", 0),
    ],
)
def test_an_error_that_cannot_be_told_changes_no_status(
    words: str, status: int, nobody: str, tmp_path: Path
) -> None:
    errors = reader_gone() if nobody == "gone" else os.open(FULL, os.O_WRONLY)
    found, _ = command(*words.split(), stderr=errors, cwd=tmp_path)
    os.close(errors)
    assert found == status


@on_a_full_device
def test_a_failure_stays_one_when_neither_stream_can_be_written() -> None:
    with FULL.open("w") as full:
        assert command("recipes", stdout=full, stderr=full) == (1, "")
        assert command("data", "nonexist", stdout=reader_gone(), stderr=full) == (2, "")


def test_no_other_file_takes_the_number_of_a_closed_stream() -> None:
    program = (
        "import os; from wcl.system.streams import open_standard_files as fill; fill();"
        "print(*(os.path.samestat(os.fstat(n), os.stat(os.devnull)) for n in range(3)))"
    )
    line = f'{sys.executable} -c "{program}" <&- 2>&-'
    done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "True False True\n"


def test_streams_that_are_closed_are_no_failure() -> None:
    line = f"{sys.executable} -m wcl recipes >&- 2>&-"
    assert subprocess.run(line, shell=True).returncode == 0
