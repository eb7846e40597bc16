"""Parquet sets of many files: opened quickly, and read a row group at a time."""

import multiprocessing
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from images import encoded, picture
from wcl.data import Source, index_cache, open_source, row_groups
from wcl.data.decode import UnreadableImage, whole_pixels
from wcl.system.errors import InputError

MINUTE = 60
TICK = 0.02  # longer than between two times that a file system tells apart


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, in which also the smallest and newest index is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(index_cache, "MIN_IMAGES", 1)
    monkeypatch.setattr(index_cache, "now", lambda: time.time_ns() + MINUTE * 10**9)
    return tmp_path / "cache" / "wcl" / "index"


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the row group last used is kept, and two footers."""
    monkeypatch.setattr(row_groups, "_MAX_CACHED", 1)
    monkeypatch.setattr(row_groups, "_MAX_FOOTERS", 2)


def shard(path: Path, numbers: range, group: int = 3, **others: Any) -> Path:
    """A file with the pictures of these numbers, labeled by them, last changed long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"bytes": encoded(picture(i, 8, 9)), "path": f"{i}.png"} for i in numbers]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns = {"image": pa.array(rows, kind), "label": pa.array(numbers, pa.int64())}
    pq.write_table(pa.table({**columns, **others}), path, row_group_size=group)
    os.utime(path, (10**9, 10**9))
    return path


def shards(root: Path) -> Path:
    """Thirty images in five files, one of which is empty."""
    for number, rows in enumerate([(0, 7), (7, 8), (8, 8), (8, 20), (20, 30)]):
        shard(root / f"train-{number}.parquet", range(*rows))
    return root


def is_picture(source: Source, index: int, number: int) -> bool:
    return whole_pixels(source.image(index)).equal(whole_pixels(picture(number, 8, 9)))


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("looked again")


@pytest.mark.usefixtures("little_memory")
def test_every_image_is_found_in_any_order(tmp_path: Path) -> None:
    source = open_source(str(shards(tmp_path / "data")))
    assert len(source) == 30
    for index in np.random.default_rng(0).permutation(30).tolist() * 2:
        assert is_picture(source, index, index)


@pytest.mark.usefixtures("little_memory")
def test_threads_may_read_at_once(tmp_path: Path) -> None:
    source = open_source(str(shards(tmp_path / "data")))
    order = np.random.default_rng(0).integers(0, 30, 200).tolist()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda index: is_picture(source, index, index), order))


def read_after_a_fork(index: int) -> bool:
    assert _source is not None
    return is_picture(_source, index, index)


_source: Source | None = None


@pytest.mark.usefixtures("little_memory")
def test_forked_processes_read_what_their_parent_reads(tmp_path: Path) -> None:
    global _source
    _source = open_source(str(shards(tmp_path / "data")))
    assert is_picture(_source, 12, 12)
    order = np.random.default_rng(0).integers(0, 30, 200).tolist()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        waiting = pool.map_async(read_after_a_fork, order)
        assert all(read_after_a_fork(index) for index in order)
        assert all(waiting.get(60))


def test_a_source_can_be_sent_to_another_process(tmp_path: Path) -> None:
    source = open_source(str(shards(tmp_path / "data")))
    source.image(3)
    sent = pickle.loads(pickle.dumps(source))
    assert all(is_picture(sent, index, index) for index in (29, 3, 0))


def test_files_that_have_not_changed_are_not_looked_into_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = shards(tmp_path / "data")
    first = open_source(str(root))
    monkeypatch.setattr(pq, "read_schema", refuse)
    with monkeypatch.context() as closed:
        closed.setattr(pq, "ParquetFile", refuse)
        again = open_source(str(root))
    assert first.labels is not None
    assert again.labels is not None
    assert again.labels.tolist() == first.labels.tolist() == list(range(30))
    assert list(again.classes) == list(first.classes)
    assert again.fingerprint() == first.fingerprint()
    assert is_picture(again, 17, 17)


def test_files_that_changed_came_or_went_are_noticed(tmp_path: Path) -> None:
    root = shards(tmp_path / "data")
    open_source(str(root))
    time.sleep(TICK)
    shard(root / "train-1.parquet", range(40, 41))  # of the same time as before
    changed = open_source(str(root))
    assert changed.labels is not None
    assert changed.labels[7] == 40
    assert is_picture(changed, 7, 40)
    shard(root / "train-0a.parquet", range(50, 52))
    assert is_picture(open_source(str(root)), 7, 50)
    (root / "train-0.parquet").unlink()
    assert is_picture(open_source(str(root)), 0, 50)


def test_files_written_just_now_have_no_index_kept(tmp_path: Path, cache: Path) -> None:
    root = shards(tmp_path / "data")
    os.utime(root / "train-3.parquet", (time.time() + MINUTE,) * 2)
    open_source(str(root))
    assert not cache.exists()
    os.utime(root / "train-3.parquet", (10**9, 10**9))
    open_source(str(root))
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"no index at all"])
def test_a_damaged_index_is_as_good_as_none(content: bytes, tmp_path: Path, cache: Path) -> None:
    root = shards(tmp_path / "data")
    open_source(str(root))
    (file,) = cache.iterdir()
    file.write_bytes(content)
    source = open_source(str(root))
    assert len(source) == 30
    np.savez(file, stamps=np.arange(3))
    assert len(open_source(str(root))) == 30


@pytest.mark.usefixtures("little_memory")
def test_only_the_row_group_of_an_image_is_read(tmp_path: Path) -> None:
    """So damage to the first one is that of its images alone."""
    file = shard(tmp_path / "x.parquet", range(9))
    chunk = pq.read_metadata(file).row_group(0).column(0)
    content = bytearray(file.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(content)
    source = open_source(str(file))
    for index in range(3):
        with pytest.raises(UnreadableImage):
            source.image(index)
    assert all(is_picture(source, index, index) for index in range(3, 9))


def test_large_row_groups_are_held_in_memory_if_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shards(tmp_path / "data")
    monkeypatch.setattr(row_groups, "_LARGE_GROUP", 1)
    monkeypatch.setattr(row_groups, "_MAX_CACHED", 1)
    held = open_source(str(root))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(row_groups, "_MAX_IN_MEMORY", 1)
    read_each_time = open_source(str(root))
    assert "smaller" in capsys.readouterr().err
    assert is_picture(read_each_time, 5, 5)
    for file in root.iterdir():
        file.unlink()
    assert all(is_picture(held, index, index) for index in range(30))
    with pytest.raises(UnreadableImage, match=r"train-4\.parquet"):
        read_each_time.image(29)


def test_files_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    root = shards(tmp_path / "data")
    table = pq.read_table(root / "train-0.parquet")
    pq.write_table(table.drop_columns("label"), root / "train-3.parquet")
    with pytest.raises(InputError, match=r"train-3\.parquet: no column label"):
        open_source(str(root))
    pq.write_table(table.rename_columns(["photo", "label"]), root / "train-3.parquet")
    with pytest.raises(InputError, match=r"train-3\.parquet: no images in the column image"):
        open_source(str(root))


def with_names(path: Path, metadata: bytes) -> Source:
    """Images of the classes 0 and 1, and what Hugging Face would say of them."""
    table = pq.read_table(shard(path, range(2)))
    pq.write_table(table.replace_schema_metadata({b"huggingface": metadata}), path)
    return open_source(str(path))


def names(words: str) -> bytes:
    return f'{{"info": {{"features": {{"label": {{"names": {words}}}}}}}}}'.encode()


@pytest.mark.parametrize(
    "metadata",
    [b"[" * 100_000, names("[1, null]"), names('[["x"], {"a": 1}]'), names('"ab"')],
    ids=["deep", "no words", "lists", "one word"],
)
def test_class_names_that_are_none_leave_the_numbers(metadata: bytes, tmp_path: Path) -> None:
    assert list(with_names(tmp_path / "a.parquet", metadata).classes) == ["0", "1"]


def test_a_class_name_of_half_a_character_can_be_written(tmp_path: Path) -> None:
    source = with_names(tmp_path / "a.parquet", names(r'["\ud800", "b"]'))
    assert list(source.classes) == ["\\ud800", "b"]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.list_(pa.date32())], ids=str)
def test_times_that_no_calendar_has_are_no_labels(kind: pa.DataType, tmp_path: Path) -> None:
    far: Any = [2**31 - 1] if pa.types.is_list(kind) else 2**31 - 1
    if pa.types.is_timestamp(kind):
        far = 2**60
    file = shard(tmp_path / "a.parquet", range(2), label=pa.array([far, far], kind))
    source = open_source(str(file))
    assert len(source) == 2
    assert source.labels is None


def test_two_columns_of_labels_are_told(tmp_path: Path) -> None:
    file = shard(tmp_path / "a.parquet", range(2))
    table = pq.read_table(file)
    pq.write_table(table.append_column("label", table["label"]), file)
    with pytest.raises(InputError, match=r"a\.parquet: has more than one column label"):
        open_source(str(file))


def test_the_fingerprint_tells_times_if_asked_to(tmp_path: Path) -> None:
    source = open_source(str(shards(tmp_path / "data")))
    before = source.fingerprint(), source.fingerprint(times=True)
    os.utime(tmp_path / "data" / "train-0.parquet")
    assert source.fingerprint() == before[0]
    assert source.fingerprint(times=True) != before[1]
