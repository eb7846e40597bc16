"""A disk that fills up, becomes read-only or vanishes while a run writes to it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import finish, start

from runs import CROPS, assert_same_run, checkpoint, tiny_run
from wcl.system.errors import RunError
from wcl.training import loop as train
from wcl.training.step import Step, gradient_step

SETTINGS: dict[str, Any] = {"epochs": 3, "crops": {**CROPS, "warmup": 1}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("whole") / "run", **SETTINGS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        while not subprocess.run(["umount", "--lazy", str(place)], capture_output=True).returncode:
            pass  # there may be another on top of it


def during_step(step: int, deed: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Have something happen in the middle of a step."""
    taken = 0

    def with_deed(*args: Any) -> Step:
        nonlocal taken
        taken += 1
        if taken == step:
            deed()
        return gradient_step(*args)

    patch.setattr(train, "gradient_step", with_deed)


def must_stop(out: Path, step: int, deed: Callable[[], object], words: str) -> str:
    """A run in which that happens ends with one line, which has those words."""
    with pytest.MonkeyPatch.context() as patch:
        during_step(step, deed, patch)
        with pytest.raises(RunError, match=words) as raised:
            tiny_run(out, **SETTINGS)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        size = 2**16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's
@pytest.mark.parametrize(("step", "tensorboard"), [(1, False), (6, False), (8, False), (6, True)])
def test_a_run_on_a_disk_that_fills_up_goes_on_when_there_is_room(
    step: int, tensorboard: bool, disk: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = disk / "run"
    monkeypatch.setitem(SETTINGS, "log", {"every": 2, "tensorboard": tensorboard})
    said = must_stop(out, step, lambda: fill(disk), "No space left on device")
    intact = "the last good checkpoint is intact" if step > 4 else "there is no good checkpoint"
    assert f"{intact}; fix this, then continue with resume=True" in said
    if step > 4:
        assert checkpoint(out)["step"] == (step - 1) // 4 * 4
    (disk / "filler").unlink()
    tiny_run(out, resume=True, **SETTINGS)
    assert_same_run(whole, out)


@pytest.mark.parametrize("step", [6, 8])
def test_a_run_on_a_disk_that_becomes_read_only_goes_on_when_it_is_not(
    step: int, disk: Path, whole: Path
) -> None:
    def become_read_only() -> None:
        """By a view of it on top: with the run's lock open, it cannot be remounted itself."""
        subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)

    out = disk / "run"
    said = must_stop(out, step, become_read_only, "Read-only file system")
    assert "the last good checkpoint is intact" in said
    with pytest.raises((RunError, OSError), match="Read-only file system"):
        tiny_run(out, resume=True, **SETTINGS)
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
    tiny_run(out, resume=True, **SETTINGS)
    assert_same_run(whole, out)


@pytest.mark.parametrize("step", [6, 8])
def test_a_run_whose_folder_vanishes_goes_on_when_it_is_back(
    step: int, tmp_path: Path, whole: Path
) -> None:
    out, away = tmp_path / "run", tmp_path / "away"
    said = must_stop(out, step, lambda: out.rename(away), "No such file or directory")
    assert "there is no good checkpoint" in said  # where it was
    away.rename(out)
    tiny_run(out, resume=True, **SETTINGS)
    assert_same_run(whole, out)


def test_vectors_on_a_disk_that_fills_up_are_gone_on_with_when_there_is_room(
    disk: Path, whole: Path
) -> None:
    """In a process of its own: one that had mapped the file into memory would be killed."""
    file = disk / "vectors.npy"
    words = ["embed", str(whole), "--data=digits", f"--out={file}"]
    fill(disk)
    with (disk / "filler").open("r+") as filler:  # room for the vectors, but for no file of them
        filler.truncate((disk / "filler").stat().st_size - 900_000)
    status, said = finish(start(words))
    full = "No space left on device; free some space, then run the command again"
    assert (status, said.splitlines()[-1]) == (1, f"wcl: {file}: {full}")
    (disk / "filler").unlink()
    status, said = finish(start(words))
    assert status == 0
    assert "continuing after" in said
    assert file.is_file()
    assert not (disk / "vectors.npy.partial").exists()
