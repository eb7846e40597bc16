import ast
import os
import signal
from pathlib import Path

import pytest

import wcl
from wcl.system.errors import InputError
from wcl.system.run_folder import RunFolder

_SHARED = {"encoder.safetensors", "neighbors.png", "report.html"}  # also written outside of runs


def test_no_other_module_spells_out_the_names_of_a_run_folder() -> None:
    paths = [path for path in vars(RunFolder("run")).values() if path.suffix]
    names = {path.name for path in paths} - _SHARED
    assert {"config.yaml", "last.ckpt", "metrics.jsonl"} <= names
    package = Path(wcl.__file__).parent
    for module in package.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                file = node.value.rpartition("/")[2]
                assert file not in names or module.name == "run_folder.py", (module, node.lineno)


def test_a_run_is_recognized_by_any_of_its_files(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.is_run
    folder.must_be_free()
    folder.metrics.touch()
    assert folder.is_run
    with pytest.raises(InputError, match=r"holds a run.*--resume"):
        folder.must_be_free()


def test_settings_without_results_are_a_failed_start_if_a_run_wrote_them(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.config.touch()
    with pytest.raises(InputError, match="holds a run"):  # somebody's file of settings
        folder.must_be_free()
    folder.checkpoint.parent.mkdir()
    folder.must_be_free()
    for result in (folder.metrics, folder.checkpoint, folder.previous_checkpoint, folder.encoder):
        result.touch()
        with pytest.raises(InputError, match="holds a run"):
            folder.must_be_free()
        result.unlink()


def test_a_folder_that_is_locked_twice_stays_locked_until_the_first_ends(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.locked():
        with folder.locked():
            pass
        assert folder.is_locked()
        with pytest.raises(InputError, match="another process"), RunFolder(tmp_path).locked():
            pass
    assert not folder.is_locked()
    with folder.locked():
        assert folder.is_locked()


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.is_locked()
    assert not folder.lock.exists()  # looking leaves nothing behind
    with folder.locked():
        assert folder.is_locked()
        assert folder.trainer.read_text().split()[0] == str(os.getpid())
    assert not folder.is_locked()


def test_the_lock_of_a_killed_run_is_free_while_its_workers_live_on(tmp_path: Path) -> None:
    """A process takes the lock and forks another, as a loader does; then it is killed."""
    reader, writer = os.pipe()
    stay, leave = os.pipe()
    owner = os.fork()
    if owner == 0:
        with RunFolder(tmp_path).locked():
            if os.fork() == 0:
                os.close(leave)
                os.write(writer, b"worker")
                os.read(stay, 1)  # until the test closes its end
                os._exit(0)
            signal.pause()
    os.close(writer)
    assert os.read(reader, 6) == b"worker"
    with (
        pytest.raises(InputError, match="another process is training"),
        RunFolder(tmp_path).locked(),
    ):
        pass
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    with RunFolder(tmp_path).locked():
        pass
    os.close(leave)  # and only now does the worker end
    assert os.read(reader, 1) == b""


def test_a_lock_is_its_owners_after_a_child_of_it_has_ended(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked():
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(InputError, match="another process"), RunFolder(tmp_path).locked():
            pass
