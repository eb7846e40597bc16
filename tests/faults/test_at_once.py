"""Several processes at one run: two that train, one that reads while another trains."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from commands import DIGITS, finish, start, wait_for_lines

import wcl
from images import photo_folder
from runs import CROPS, assert_same_run, checkpoint, photo_run
from wcl.evaluation import evaluate
from wcl.system.run_folder import RunFolder


def test_of_two_runs_that_start_into_one_folder_one_is_told_and_the_other_is_undisturbed(
    tmp_path: Path,
) -> None:
    words = ["pretrain", *DIGITS, "--epochs=3"]
    both = [start([*words, f"--out={tmp_path / 'run'}"]) for _ in range(2)]
    alone = start([*words, f"--out={tmp_path / 'alone'}"])
    (status, said), (other, told) = sorted(finish(process) for process in both)
    assert (status, other) == (0, 2), (said, told)
    reason = told.splitlines()[-1]  # after what is printed before the folder is taken
    assert "holds a run" in reason or "another process is training into it" in reason
    assert finish(alone)[0] == 0
    assert_same_run(tmp_path / "alone", tmp_path / "run")


def test_an_encoder_can_be_loaded_and_evaluated_at_any_moment_of_a_run(tmp_path: Path) -> None:
    """An epoch is one step here, so the file is replaced all the time."""
    out = tmp_path / "run"
    process = start(["pretrain", *DIGITS, "--limit=32", "--epochs=2000", f"--out={out}"])
    wait_for_lines(out, 2)
    seen = set()
    for _ in range(30):
        encoder = wcl.load(out)
        seen.add(encoder.description.epoch)
        assert encoder.embed(torch.zeros(2, 1, 32, 32, dtype=torch.uint8)).isfinite().all()
    assert len(seen) > 1, "it was not replaced meanwhile"
    assert evaluate(out, "knn", "digits").top1 > 0.1
    process.send_signal(signal.SIGTERM)
    status, said = finish(process)
    assert status == 130, said


def test_a_folder_is_taken_by_one_of_two_at_the_same_instant(tmp_path: Path) -> None:
    from wcl.config import PretrainConfig
    from wcl.system.errors import InputError
    from wcl.training.setup import create_run

    config = PretrainConfig(out=str(tmp_path / "run"))
    with ExitStack() as stack:
        create_run(RunFolder(config.out), config, stack)
        with pytest.raises(InputError, match="another process is training"):
            create_run(RunFolder(config.out), config, stack)


def test_the_same_command_twice_gives_the_same_run_of_photos_and_neighbors(
    tmp_path: Path,
) -> None:
    photos = photo_folder(tmp_path / "photos")
    crops = {**CROPS, "warmup": 1}
    runs = [
        photo_run(photos, tmp_path / name, crops=crops, epochs=3, num_workers=2)
        for name in ("one", "other")
    ]
    assert_same_run(*runs)


def test_a_run_goes_on_when_nobody_reads_what_it_says_any_more(tmp_path: Path) -> None:
    process = start(["pretrain", *DIGITS, "--epochs=3", f"--out={tmp_path / 'run'}"])
    assert process.stderr is not None
    assert "of memory" in process.stderr.readline()
    process.stderr.close()
    assert process.wait(240) == 0
    assert checkpoint(tmp_path / "run")["step"] == 12
