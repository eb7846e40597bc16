"""Commands to copy after a run has finished."""

import re
import shlex
from pathlib import Path

import pytest

from images import flat_folder, photo_folder
from wcl.cli import run_command

QUICK = (
    "--epochs 1 --batch_size 8 --image_size 32 --model.backbone conv_tiny --crops.count 0 "
    "--model.head_hidden_dim 16 --num_workers 0 --log.tensorboard false"
)


@pytest.mark.parametrize(
    ("labeled", "names"), [(True, "eval report"), (False, "duplicates report")]
)
def test_the_commands_that_a_run_ends_with_work_as_printed(
    labeled: bool,
    names: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    data = (photo_folder if labeled else flat_folder)(tmp_path / "my photos")
    words = ["pretrain", "--data", str(data), "--out", "a run", *QUICK.split()]
    assert run_command(words) == 0
    printed = re.findall(r"^  (wcl .*)$", capsys.readouterr().err, re.M)
    commands = [shlex.split(line)[1:] for line in printed]
    assert [command[0] for command in commands] == names.split()
    for command in commands:
        assert run_command(command) == 0
