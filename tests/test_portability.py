"""The package without what only POSIX systems have, and with processes that are not forked."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import wcl
from images import photo_folder
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import Source, open_source
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.system.files import atomic_write, fsync

_WITHOUT_POSIX = """
import importlib, os, pkgutil, signal, sys

def import_all():
    import wcl
    for module in pkgutil.walk_packages(wcl.__path__, "wcl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

import_all()  # other packages keep what they find now
for name in [name for name in sys.modules if name.split(".")[0] == "wcl"]:
    del sys.modules[name]
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU", "SIGCHLD", "SIGALRM", "SIGKILL"):
    delattr(signal, name)
for name in ("fork", "getuid", "geteuid", "killpg", "pidfd_open", "posix_fallocate"):
    delattr(os, name)
for name in ("register_at_fork", "sched_getaffinity", "setsid", "sysconf"):
    delattr(os, name)
import_all()

import wcl
settings = {"limit": 64, "batch_size": 32, "epochs": 1, "crops": {"count": 2, "neighbors": True}}
run = wcl.pretrain("digits", out=sys.argv[1], **settings)
assert wcl.evaluate(run, "knn", "digits").top1 > 0.1
print("trained")
"""


def test_everything_imports_and_trains_without_posix(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_POSIX, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("trained\n"), done.stderr


def test_a_folder_that_cannot_be_opened_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where a file that is not open for writing cannot be flushed either."""
    really_open = os.open

    def as_windows_opens(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).is_dir() or flags & os.O_ACCMODE == os.O_RDONLY:
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", as_windows_opens)
    with atomic_write(tmp_path / "file") as unfinished:
        unfinished.write_text("content")
    fsync(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "file").read_text() == "content"


def test_text_files_are_utf_8_on_every_system() -> None:
    """The default encoding of Windows is another one."""
    for module in Path(wcl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                modes = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
                is_text = node.func.attr in ("read_text", "write_text") or (
                    node.func.attr == "open" and modes in (["r"], ["w"], ["a"], ["x"])
                )
                given = {keyword.arg for keyword in node.keywords}
                assert not is_text or "encoding" in given, (module, node.lineno)


def photo_views(source: Source, num_workers: int) -> list[torch.Tensor]:
    loader = Loader(source, 8, 0, torch.device("cpu"), num_workers)
    specs = [ViewSpec(ViewMaker(AugmentConfig(), 32), 2)]
    return [batch.views[0] for batch in loader.epoch(0, specs)]


_SPAWNED = """
import sys
import torch
from test_portability import photo_views
from wcl.data import open_source

if __name__ == "__main__":
    torch.multiprocessing.set_start_method("spawn")
    torch.save(photo_views(open_source(sys.argv[1]), 2), sys.argv[2])
"""


def test_spawned_processes_decode_the_same_views(tmp_path: Path) -> None:
    """Windows and macOS spawn processes instead of forking them."""
    photos, script = photo_folder(tmp_path / "photos"), tmp_path / "script.py"
    script.write_text(_SPAWNED)
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run(
        [sys.executable, str(script), str(photos), str(tmp_path / "views.pt")],
        env=os.environ | {"PYTHONPATH": paths},
        check=True,
    )
    spawned = torch.load(tmp_path / "views.pt")
    here = photo_views(open_source(str(photos)), 0)
    assert all(torch.equal(a, b) for a, b in zip(spawned, here, strict=True))
