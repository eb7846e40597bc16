"""Processes that decode photos: one that dies, one that hangs; and nothing is left behind."""

import os
import signal
import time
from multiprocessing import active_children, parent_process
from pathlib import Path
from typing import Any

import pytest
from commands import PHOTOS, children, finish, is_alive, lines_of, start, wait_for_lines

from images import photo_folder
from runs import assert_same_run, photo_run
from wcl.data import open_source
from wcl.evaluation.features import pixel_batches
from wcl.models.encoder import load
from wcl.system.errors import RunError
from wcl.training import loop as train
from wcl.training.step import Step, gradient_step


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photo_folder(tmp_path / "photos")


def must_be_gone(processes: list[int]) -> None:
    until = time.monotonic() + 60
    while any(map(is_alive, processes)):
        assert time.monotonic() < until, "a process was left behind"
        time.sleep(0.1)


def test_workers_that_die_or_hang_end_the_run_and_it_can_go_on(
    photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["pretrain", *PHOTOS, f"--data={photos}", f"--out={out}", "--epochs=200"]
    for number, (deed, told) in enumerate(
        [(signal.SIGKILL, "died"), (signal.SIGSTOP, "did not answer within 0.2 minutes")]
    ):
        before = lines_of(out)
        process = start([*words, "--timeout_minutes=0.2", *(["--resume"] if number else [])])
        wait_for_lines(out, before + 4)
        num_workers = children(process.pid)
        assert len(num_workers) == 1
        os.kill(num_workers[0], deed)
        status, said = finish(process)
        assert status == 1, said
        last = said.splitlines()[-1]
        assert last.startswith(f"wcl: {photos}: a process that decodes photos {told}"), said
        assert last.endswith("checkpoint is intact, continue with --resume")
        assert "Traceback" not in said
        must_be_gone(num_workers)


def test_a_run_whose_worker_died_in_a_step_goes_on_to_the_same_end(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = photo_run(photos, tmp_path / "whole")
    steps = 0

    def kill_and_step(*args: Any) -> Step:
        nonlocal steps
        steps += 1
        if steps == 5:  # of six
            for worker in active_children():
                worker.kill()
                worker.join()
        return gradient_step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(train, "gradient_step", kill_and_step)
        with pytest.raises(RunError, match=r"photos died.*checkpoint is intact.*resume=True"):
            photo_run(photos, tmp_path / "parts")
    photo_run(photos, tmp_path / "parts", resume=True)
    assert_same_run(whole, tmp_path / "parts")


def test_two_quick_ctrl_c_end_the_run_without_a_traceback(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(["pretrain", *PHOTOS, f"--data={photos}", f"--out={out}", "--epochs=200"])
    wait_for_lines(out)
    num_workers = children(process.pid)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)
    status, said = finish(process)
    assert status == 130, said
    assert "Traceback" not in said
    must_be_gone(num_workers)


def test_the_worker_of_a_killed_run_ends(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(["pretrain", *PHOTOS, f"--data={photos}", f"--out={out}", "--epochs=200"])
    wait_for_lines(out)
    num_workers = children(process.pid)
    assert num_workers
    process.kill()
    process.communicate()
    must_be_gone(num_workers)


@pytest.mark.parametrize("stopped", [False, True], ids=["killed", "stopped, and Ctrl-C"])
def test_a_worker_is_watched_where_features_are_computed(
    stopped: bool, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load(photo_run(photos, tmp_path / "run", epochs=1))
    source = open_source(str(photos))

    def end(index: int) -> None:
        assert parent_process() is not None
        if stopped:
            time.sleep(1)  # until the parent waits: a signal just before that is handled after it
            os.kill(os.getppid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGSTOP if stopped else signal.SIGKILL)

    monkeypatch.setattr(source, "image", end)
    before = set(active_children())
    wanted = KeyboardInterrupt if stopped else RunError
    with pytest.raises(wanted, match=None if stopped else r"photos died.*same command.*again"):
        list(pixel_batches(encoder, source, num_workers=1))
    assert set(active_children()) <= before
