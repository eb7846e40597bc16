"""Checkpoints on a failing disk."""

import hashlib
import io
import os
import resource
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoints import CONFIG, save, state
from runs import assert_same_run, tiny_run
from wcl.system.errors import InputError, RunError
from wcl.training.checkpoint import load_checkpoint, save_checkpoint


def loaded_step(path: Path) -> int:
    """The step that a run would go on from; its weights must be those of that step."""
    found = load_checkpoint(path, CONFIG)
    assert found is not None
    assert (found["method"]["weight"] == found["step"]).all()
    return int(found["step"])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.unlink()  # what is mapped into memory stays as it is
    path.write_bytes(content)


def test_the_checkpoint_before_the_last_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        path = save(tmp_path, step)
    assert names(tmp_path) == {"last.ckpt", "previous.ckpt"}
    assert loaded_step(path) == 3
    assert loaded_step(path.with_name("previous.ckpt")) == 2


def test_every_flipped_bit_is_seen_and_the_checkpoint_before_is_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bits all over the file, in what torch never looks at too, and all around the digest."""
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    bits = path.stat().st_size * 8
    random = np.random.default_rng(0)
    chosen = [*random.integers(bits, size=60).tolist(), *range(bits - 400, bits, 9), 0, bits - 1]
    for bit in chosen:
        flip(path, bit)
        assert loaded_step(path) == 1, bit
        said = capfd.readouterr().err
        assert said.endswith("last.ckpt: damaged; using previous.ckpt instead, of step 1\n")
        assert said.count("\n") == 1
        flip(path, bit)
    assert loaded_step(path) == 2
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("left", [0.0, 0.01, 0.5, 0.99, -1])
def test_a_checkpoint_cut_short_is_seen(left: float, tmp_path: Path) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    size = path.stat().st_size
    os.truncate(path, size - 1 if left < 0 else int(size * left))
    assert loaded_step(path) == 1


def test_two_damaged_checkpoints_are_one_clear_error(tmp_path: Path) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    for file in tmp_path.iterdir():
        os.truncate(file, 1000)
    with pytest.raises(
        InputError, match=r"last\.ckpt: not a checkpoint.*neither is previous\.ckpt"
    ):
        load_checkpoint(path, CONFIG)


def test_a_last_checkpoint_that_is_gone_is_replaced_by_the_one_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As after a power cut between the two renamings."""
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    path.unlink()
    assert loaded_step(path) == 1
    assert "last.ckpt: missing; using previous.ckpt instead" in capfd.readouterr().err


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(tmp_path: Path) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    flip(path, 5000)
    save(tmp_path, 3)
    assert loaded_step(path) == 3
    assert loaded_step(path.with_name("previous.ckpt")) == 1


def test_a_checkpoint_of_another_version_is_called_that_and_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save_checkpoint({"format": 2}, CONFIG, path)
    with pytest.raises(InputError, match="of another version of wcl"):
        load_checkpoint(path, CONFIG)


def test_a_run_goes_on_from_the_checkpoint_before_and_ends_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, parts = tiny_run(tmp_path / "whole"), tiny_run(tmp_path / "parts")
    flip(parts / "checkpoints" / "last.ckpt", 20_000)
    tiny_run(parts, resume=True)
    assert "using previous.ckpt instead, of step 4" in capfd.readouterr().err
    assert_same_run(whole, parts)


def must_fail_to_save(folder: Path, reason: str) -> None:
    with pytest.raises(RunError, match=rf"could not be saved \({reason}\).*last good.*is intact"):
        save(folder, 3, numbers=200_000)
    assert names(folder) == {"last.ckpt", "previous.ckpt"}
    assert loaded_step(folder / "last.ckpt") == 2
    assert loaded_step(folder / "previous.ckpt") == 1


@pytest.fixture
def two_saved(tmp_path: Path) -> Path:
    save(tmp_path, 1)
    save(tmp_path, 2)
    return tmp_path


def test_a_full_disk_is_named_and_nothing_is_lost(two_saved: Path) -> None:
    (two_saved / "last.ckpt.tmp").symlink_to("/dev/full")
    must_fail_to_save(two_saved, "No space left on device")
    save(two_saved, 4)
    assert loaded_step(two_saved / "last.ckpt") == 4


def test_a_limit_on_the_size_of_files_is_named_and_nothing_is_lost(two_saved: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        must_fail_to_save(two_saved, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 400 KB."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_file_system_that_is_full_or_read_only_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        save(disk, 1)
        save(disk, 2)
        must_fail_to_save(disk, "No space left on device")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        must_fail_to_save(disk, "Read-only file system")


def test_a_folder_that_vanished_is_named_and_nothing_is_promised(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"No such file or directory\); there is no good checkpoint"):
        save(tmp_path / "gone", 1)


def kill_while_saving(folder: Path, first: int, random: np.random.Generator) -> int:
    """Have a process save checkpoints without end and kill it; the last step that it had saved."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        step = first
        while True:
            save(folder, step, numbers=300_000)
            os.write(writer, step.to_bytes(8, "little"))
            step += 1
    os.close(writer)
    done = first - 1
    for _ in range(int(random.integers(1, 4))):
        done = int.from_bytes(os.read(reader, 8), "little")
    subprocess.run(["sleep", f"{random.uniform(0, 0.02):.4f}"], check=True)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    while rest := os.read(reader, 8):
        done = int.from_bytes(rest, "little")
    os.close(reader)
    return done


def killed_again_and_again(folder: Path, times: int) -> None:
    random = np.random.default_rng(0)
    step = 0
    for _ in range(times):
        saved = kill_while_saving(folder, step + 1, random)
        step = loaded_step(folder / "last.ckpt")
        assert step >= saved  # what save_checkpoint had returned from is there


def test_a_process_killed_while_it_saves_loses_nothing_it_had_saved(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 8)


@pytest.mark.soak
def test_a_process_killed_200_times_while_it_saves_loses_nothing(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, 200)


@pytest.mark.parametrize("part", sorted(state(1)))
def test_a_checkpoint_that_lacks_a_part_is_refused_though_its_digest_is_right(
    part: str, tmp_path: Path
) -> None:
    path = tmp_path / "last.ckpt"
    save_checkpoint({k: v for k, v in state(1).items() if k != part}, CONFIG, path)
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(path, CONFIG)


PICKLES = {
    "nothing": b"",
    "a number cut short": b"\x80\x02J\x01",
    "a storage that is none": b"\x80\x02K\x01Q.",
    "more than any memory": b"\x80\x02c__builtin__\nbytearray\n\x8a\x07\0\0\0\0\0\0\x7f\x85R.",
    "a number": b"\x80\x02K\x05.",
    "text that is none": b"\x80\x02X\x02\0\0\0\xff\xfe.",
}


@pytest.mark.parametrize("pickled", PICKLES.values(), ids=PICKLES.keys())
@pytest.mark.parametrize("sealed", [True, False])
def test_a_checkpoint_that_torch_cannot_read_is_refused_whatever_its_digest(
    pickled: bytes, sealed: bool, tmp_path: Path
) -> None:
    path, content = save(tmp_path, 1), io.BytesIO()
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(content, "w") as changed:
        for name in whole.namelist():
            changed.writestr(name, pickled if name.endswith("/data.pkl") else whole.read(name))
    digest = hashlib.sha256(content.getvalue()).digest() if sealed else bytes(32)
    path.write_bytes(content.getvalue() + b"wcl sha256 " + digest)
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(path, CONFIG)


def test_a_file_with_a_wrong_digest_is_not_given_to_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 1)
    flip(path, 8 * path.stat().st_size - 1)
    given: list[Path] = []
    monkeypatch.setattr(torch, "load", lambda file, **_: given.append(file))
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(path, CONFIG)
    assert given == []
