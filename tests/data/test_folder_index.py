"""Folders open quickly a second time, and are what they are now, whatever was kept of them."""

import multiprocessing
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from images import encoded, picture
from wcl.data import index_cache, open_source
from wcl.data.folder import FolderSource, describe_left_out
from wcl.data.packed_names import PackedNames
from wcl.system.errors import InputError

MINUTE = 60
TICK = 0.02  # longer than between two times that a file system tells apart
IMAGE = encoded(picture(0, 4, 4))
TREE = ("a/1.png", "a/2.png", "a/deep/er/3.png", "b/1.png", "b/2.PNG", "b/notes.txt")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, in which also the smallest and newest index is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(index_cache, "MIN_IMAGES", 1)
    monkeypatch.setattr(index_cache, "now", lambda: time.time_ns() + MINUTE * 10**9)
    return tmp_path / "cache" / "wcl" / "index"


def tree(root: Path, names: tuple[str, ...] = TREE) -> Path:
    """Files of these names, in folders that were last changed long ago."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(IMAGE)
    return settled(root)


def settled(root: Path, when: int = 10**9) -> Path:
    for folder, _, _ in os.walk(root):
        os.utime(folder, (when, when))
    return root


def opened(root: Path) -> list[str]:
    source = open_source(str(root))
    assert isinstance(source, FolderSource)
    return list(source.paths)


def there(root: Path) -> list[str]:
    """What is in the folder according to pathlib."""
    files = (file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    return sorted(file for file in files if file.lower().endswith(".png"))


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("looked again")


def test_a_folder_that_has_not_changed_is_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "data")
    first, expected = open_source(str(root)), [str(root / path) for path in there(root)]
    monkeypatch.setattr(os, "scandir", refuse)
    again = open_source(str(root))
    assert [again.where(i) for i in range(len(again))] == expected
    assert first.labels is not None
    assert again.labels is not None
    assert first.labels.tolist() == again.labels.tolist() == [0, 0, 0, 1, 1]
    assert list(again.classes) == ["a", "b"]
    assert again.fingerprint() == first.fingerprint()


def test_files_that_are_no_images_are_counted_also_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("a/x.TXT", "b/clip.mov", "README", "b/deep/rows.parquet", "odd. a", ".hidden")
    root = tree(tmp_path / "data", (*TREE, *others))
    expected = {".txt": 2, ".mov": 1, "without extension": 1, ".parquet": 1, ". a": 1}
    assert open_source(str(root)).left_out == expected
    monkeypatch.setattr(os, "scandir", refuse)
    again = open_source(str(root))
    assert again.left_out == expected
    assert describe_left_out(again).startswith("6 files are not images")
    assert describe_left_out(again, again).endswith(
        "4 .txt, 2 . a, 2 .mov, 2 .parquet, 2 without extension"
    )


def test_files_of_a_pattern_that_are_no_images_are_counted(tmp_path: Path) -> None:
    root = tree(tmp_path / "data", (*TREE, "b/README", "c.mov"))
    assert open_source(f"{root}/b/*").left_out == {".txt": 1, "without extension": 1}


def test_a_folder_without_images_tells_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no images.*1 file .* left out: 1 \.txt"):
        open_source(str(tree(tmp_path / "data", ("a/notes.txt",))))


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a/9.png").write_bytes(IMAGE),
        lambda root: (root / "9.png").write_bytes(IMAGE),
        lambda root: (root / "a/deep/er/9.png").write_bytes(IMAGE),
        lambda root: (root / "a/1.png").unlink(),
        lambda root: (root / "a/1.png").rename(root / "a/deep/1.png"),
        lambda root: (root / "a/1.png").rename(root / "a/1.txt"),
        lambda root: (root / "a").rename(root / "c"),
        lambda root: (root / "a/deep").rename(root / "b/deep"),
        lambda root: shutil.rmtree(root / "a/deep"),
        lambda root: shutil.copytree(root / "a", root / "b/a"),
    ],
)
@pytest.mark.parametrize("dated_back", [False, True])
def test_whatever_changed_is_noticed(
    change: Callable[[Path], Any], dated_back: bool, tmp_path: Path
) -> None:
    root = tree(tmp_path / "data")
    before = opened(root)
    time.sleep(TICK)
    change(root)
    if dated_back:
        settled(root)  # as copying tools do that keep the times
    assert opened(root) == there(root) != before
    assert opened(root) == there(root)


def test_another_folder_at_the_same_place_is_another_folder(tmp_path: Path) -> None:
    root = tree(tmp_path / "data")
    opened(root)
    root.rename(tmp_path / "moved")
    assert opened(tree(root, ("a/5.png", "b/6.png"))) == ["a/5.png", "b/6.png"]
    assert opened(tmp_path / "moved") == there(tmp_path / "moved")
    shutil.rmtree(root)
    (tmp_path / "moved").rename(root)
    assert opened(root) == there(root) == [name for name in sorted(TREE) if "txt" not in name]


def test_a_folder_that_was_changed_just_now_is_listed_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might change once more without its times telling so."""
    root = tree(tmp_path / "data")
    os.utime(root / "b", (time.time() + MINUTE,) * 2)
    opened(root)
    assert list(cache.iterdir())
    listed: list[bytes] = []
    scandir = os.scandir

    def noting(path: bytes) -> Any:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting)
    opened(root)
    assert listed == [os.fsencode(root / "b") + b"/"]


def test_what_links_lead_to_may_come_and_go(tmp_path: Path) -> None:
    root = tree(tmp_path / "data")
    elsewhere = tree(tmp_path / "elsewhere", ("x.png", "folder/y.png"))
    (root / "a/link.png").symlink_to(elsewhere / "x.png")
    (root / "c").symlink_to(elsewhere / "folder")
    settled(root)
    both = opened(root)
    assert {"a/link.png", "c/y.png"} <= set(both)
    (elsewhere / "x.png").rename(elsewhere / "gone.png")
    (elsewhere / "folder").rename(elsewhere / "gone")
    assert set(both) - set(opened(root)) == {"a/link.png", "c/y.png"}
    (elsewhere / "gone.png").rename(elsewhere / "x.png")
    (elsewhere / "gone").rename(elsewhere / "folder")
    assert opened(root) == both


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    middle = content.index(b"1.png")  # a name that would be another one
    return content[:middle] + b"7" + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, flipped, lambda _: b"", lambda _: b"no index at all"])
def test_a_damaged_index_is_as_good_as_none(
    damage: Callable[[bytes], bytes], tmp_path: Path, cache: Path
) -> None:
    root = tree(tmp_path / "data")
    opened(root)
    (file,) = cache.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert opened(root) == there(root)


def test_an_index_of_something_else_is_as_good_as_none(tmp_path: Path, cache: Path) -> None:
    root = tree(tmp_path / "data")
    opened(root)
    (file,) = cache.iterdir()
    np.savez(file, folders=np.arange(3), names=np.arange(3), stamps=np.arange(3))
    assert opened(root) == there(root)


def test_no_place_to_keep_an_index_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "data")
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert opened(root) == opened(root) == there(root)


def test_small_folders_leave_nothing_and_no_folder_is_written_to(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "data")
    before = sorted(root.rglob("*"))
    opened(root)
    assert sorted(root.rglob("*")) == before
    assert list(cache.iterdir())
    shutil.rmtree(cache)
    monkeypatch.setattr(index_cache, "MIN_IMAGES", 6)
    opened(root)
    assert not cache.exists()


def test_names_that_are_not_text_are_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "data")
    odd = os.fsencode(root) + b"/a/\xff\xfe\n.png"
    os.rename(root / "a/1.png", odd)  # noqa: PTH104
    settled(root)
    before = opened(root)
    monkeypatch.setattr(os, "scandir", refuse)
    assert opened(root) == before
    assert "a/\udcff\udcfe\n.png" in before


def test_processes_may_open_a_folder_at_once(tmp_path: Path, cache: Path) -> None:
    root = tree(tmp_path / "data", tuple(f"{i % 7}/{i:04d}.png" for i in range(300)))
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(opened, [root] * 12, chunksize=1)
    assert found == [there(root)] * 12
    assert [file.suffix for file in cache.iterdir()] == [".npz"]


def test_the_order_is_that_of_the_whole_paths(tmp_path: Path) -> None:
    """Which is not that of folder after folder: "a-b/" comes before "a/", "a.png" between."""
    names = (
        "a/x.png a-b/x.png a.png a0/x.png A.png é.png a/b/c.png a/b-c.png a/b.png a/b0.png 漢.png"
    )
    root = tree(tmp_path / "data", tuple(names.split()))
    assert opened(root) == opened(root) == sorted(names.split())


def test_a_link_back_to_the_folder_adds_no_images(tmp_path: Path) -> None:
    root = tree(tmp_path / "images")
    (root / "data").symlink_to(root)
    assert opened(root) == there(root)


def test_parquet_files_deeper_down_are_no_images(tmp_path: Path) -> None:
    root = tree(tmp_path / "data", ("a/1.png", "a/2.parquet", "b/1.png"))
    assert opened(root) == ["a/1.png", "b/1.png"]


def test_the_fingerprint_tells_sizes_but_no_times_or_places(tmp_path: Path) -> None:
    root = tree(tmp_path / "data")
    before = open_source(str(root))
    shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copyfile)
    copy = open_source(str(tmp_path / "copy"))
    assert copy.fingerprint() == before.fingerprint()
    assert copy.fingerprint(times=True) != before.fingerprint(times=True)
    (root / "b/1.png").write_bytes(IMAGE + b"more")
    assert open_source(str(root)).fingerprint() != copy.fingerprint()


def test_packed_names_are_a_list_of_strings() -> None:
    names = [f"{i % 13}/{'x' * (i % 5)}{i}.jpg" for i in range(25_000)] + ["\udcff", "漢字"]
    packed = PackedNames(b"".join(os.fsencode(name) + b"\0" for name in names))
    assert len(packed) == len(names)
    assert list(packed) == names
    assert [packed[0], packed[-1], packed[20_000]] == [names[0], names[-1], names[20_000]]
    assert packed[3:20_000:777] == names[3:20_000:777]
    assert packed.index(names[100]) == 100
    assert list(pickle.loads(pickle.dumps(packed))) == names
    assert list(PackedNames(b"")) == []
    with pytest.raises(IndexError):
        packed[len(names)]
