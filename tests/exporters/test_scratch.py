"""Folders for what is unfinished: those of killed processes go, those of living ones stay."""

import os
import signal
from pathlib import Path

import pytest
import torch

import wcl
from wcl.config import ModelConfig
from wcl.exporters.scratch import scratch_folder
from wcl.models.encoder import Description, Encoder


def leave_by_a_kill(parent: Path) -> Path:
    """What a process leaves there that is killed while it exports."""
    before = set(parent.iterdir())
    process = os.fork()
    if process == 0:
        with scratch_folder(parent) as folder:
            (folder / "half.onnx").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    (left,) = set(parent.iterdir()) - before
    return left


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = ModelConfig("conv_tiny", head_hidden_dim=16, head_out_dim=8)
    file = tmp_path_factory.mktemp("run") / "encoder.safetensors"
    torch.manual_seed(0)
    Encoder(Description(model, ("g",), 3, 32, (0.5,) * 3, (0.2,) * 3)).save(file)
    return file


@pytest.mark.parametrize("to", ["timm", "hub-folder"])
def test_the_next_export_removes_what_a_killed_one_left(
    to: str, encoder: Path, tmp_path: Path
) -> None:
    assert (leave_by_a_kill(tmp_path) / "half.onnx").exists()
    out = tmp_path / ("x.safetensors" if to == "timm" else "lock")  # a name that we use ourselves
    wcl.export(encoder, to, out)
    assert list(tmp_path.iterdir()) == [out]


def test_in_a_run_too(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "encoder.safetensors").write_bytes(encoder.read_bytes())
    leave_by_a_kill(tmp_path)
    wcl.export(tmp_path, "timm")
    assert {path.name for path in tmp_path.iterdir()} == {"encoder.safetensors", "export"}


@pytest.mark.parametrize("begun", [False, True])
def test_what_was_left_before_it_was_locked_goes_later(begun: bool, tmp_path: Path) -> None:
    left = tmp_path / f".export-{'5' * 32}"
    left.mkdir()
    if begun:
        (left / "new").touch()
    with scratch_folder(tmp_path):
        assert left.is_dir()  # it may be of this moment
    os.utime(left, (0, 0))
    with scratch_folder(tmp_path):
        assert not left.exists()


def test_the_folder_of_a_living_export_stays(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as first, scratch_folder(tmp_path) as second:
        (second / "half").touch()
        assert first.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_what_is_the_users_stays(tmp_path: Path) -> None:
    elsewhere = leave_by_a_kill(tmp_path)
    mine = elsewhere.rename(tmp_path / "mine")
    named_so = [".export-notes", f".export-{'0' * 31}", f".export-{'1' * 32}"]
    for name in named_so:
        (tmp_path / name).mkdir()
        (tmp_path / name / "letter.txt").write_text("dear")
    for name in named_so[:2]:
        (tmp_path / name / "lock").touch()
    (tmp_path / f".export-{'2' * 32}").write_text("a file")
    (tmp_path / f".export-{'3' * 32}").symlink_to(tmp_path / "nowhere")
    (tmp_path / f".export-{'4' * 32}").symlink_to(mine)
    (tmp_path / f".export-{'5' * 32}" / "new").mkdir(parents=True)
    (tmp_path / f".export-{'6' * 32}").mkdir()
    (tmp_path / f".export-{'6' * 32}" / "new").write_text("dear")
    (tmp_path / "empty").mkdir()
    (tmp_path / f".export-{'7' * 32}").symlink_to(tmp_path / "empty")
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0), follow_symlinks=False)
    before = set(tmp_path.rglob("*"))
    with scratch_folder(tmp_path):
        pass
    assert set(tmp_path.rglob("*")) == before
    assert (mine / "half.onnx").exists()
