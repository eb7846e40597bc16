"""Files that commands write: over nothing, whole or not at all, and named as files can be."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import wcl
from runs import tiny_run
from wcl.cli import run_command
from wcl.config import KnnConfig
from wcl.evaluation.confusion import check_confusion, write_confusion
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, clear_unfinished, free_name, holds_files, new_file
from wcl.system.paths import expanded


@contextmanager
def full_disk(after: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: what a full disk is to whoever writes."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic_write(path) as unfinished:
        unfinished.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"

    def write_and_stop(text: str) -> None:
        with atomic_write(path) as unfinished:
            unfinished.write_text(text)
            raise KeyboardInterrupt

    with full_disk(1000), pytest.raises(OSError, match="File too large"):
        write_and_stop("x" * 2000)
    with pytest.raises(KeyboardInterrupt):
        write_and_stop("second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_wanted_unless_it_is_of_another(tmp_path: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "nowhere" / "b.txt"

    def write(to: Path | None = None) -> None:
        with atomic_write(path) as unfinished:
            (to or unfinished).write_text("x" * 2000)

    with full_disk(1000), pytest.raises(OSError, match="File too large") as full:
        write()
    with pytest.raises(FileNotFoundError) as missing:
        write(other)
    assert (full.value.filename, missing.value.filename) == (str(path), str(other))
    path = other
    with pytest.raises(FileNotFoundError) as missing:
        write()
    assert missing.value.filename == str(other)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=1)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["report", "--data", "digits", "--images", "20"], "page.html"),
        (["embed", "--data", "digits"], "vectors.parquet"),
        (["embed", "--data", "digits"], "vectors.npy"),
        (["embed", "--data", "digits"], "vectors.csv"),
        (["export", "--to", "timm"], "x.safetensors"),
        (["export", "--to", "torchscript"], "x.pt"),
        (["export", "--to", "onnx"], "x.onnx"),
        (["export", "--to", "hub-folder"], "hub"),
    ],
)
def test_a_full_disk_is_one_line_that_names_the_file_and_what_to_do(
    command: list[str],
    name: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, *options = command
    # The vectors themselves fit, their file does not.
    room = 600_000 if first == "embed" else 1000
    with full_disk(room):
        assert run_command([first, str(run), *options, "--out", str(tmp_path / name)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"wcl: {tmp_path / name}: File too large; fix this, then run")
    partial = {tmp_path / f"{name}.partial"} if first == "embed" else set()
    assert set(tmp_path.iterdir()) == partial
    assert run_command([first, str(run), *options, "--out", str(tmp_path / name)]) == 0


def test_a_name_as_long_as_names_can_be_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 251 + ".txt")
    with atomic_write(path) as unfinished:
        unfinished.write_text("x")
    assert list(tmp_path.iterdir()) == [path]


def test_a_confusion_table_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    config = KnnConfig(confusion=str(tmp_path / "table.csv"))
    labels = torch.arange(60)
    with full_disk(1000), pytest.raises(OSError, match="File too large"):
        write_confusion(config.confusion, labels, labels, [f"class {i}" for i in range(60)])
    assert list(tmp_path.iterdir()) == []
    check_confusion(config)  # and so the next attempt may use the name


def test_a_map_on_a_full_disk_leaves_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with full_disk(6000), pytest.raises(OSError, match="File too large"):
        wcl.evaluate(run, "project", "digits", out=str(out / "map.png"), groups=2, per_group=5)
    assert list(out.iterdir()) == []


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "out.png"
    link.symlink_to(tmp_path / "unmounted" / "out.png")
    with pytest.raises(InputError, match="a broken link; choose another --out"):
        new_file(str(link), (".png",))
    with pytest.raises(InputError, match="choose another --confusion"):
        check_confusion(KnnConfig(confusion=str(link)))


def test_a_free_name_is_not_that_of_a_link_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.png").touch()
    (tmp_path / "map-2.png").symlink_to("nowhere")
    assert free_name("map.png") == Path("map-3.png")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b"])
def test_what_no_file_can_be_called_is_an_input_error(name: str) -> None:
    with pytest.raises(InputError, match="a file name") as refused:
        expanded(name)
    assert len(str(refused.value)) < 100


def test_what_killed_processes_left_is_cleared_and_what_others_write_now_is_not(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "notes.tmp"
    left = tmp_path / f".wcl-{'0' * 32}.tmp"
    left.write_text("half")
    assert not holds_files(tmp_path)
    kept.write_text("mine")
    long_ago = time.time() - 2 * 3600
    for path in (kept, left):
        os.utime(path, (long_ago, long_ago))
    with atomic_write(tmp_path / "a.txt") as unfinished:
        unfinished.write_text("whole")
        clear_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "notes.tmp"]
    assert holds_files(tmp_path)
