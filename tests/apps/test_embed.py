"""`wcl embed`: the vectors are those of the encoder, in three formats, stopped or not."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import wcl
from images import flat_folder, photo_folder, picture
from runs import photo_run, tiny_run
from wcl.apps import embed as embed_app
from wcl.apps.embed import CHUNK, ChunkStore, chunks, embed
from wcl.cli import run_command
from wcl.config import EmbedConfig
from wcl.data import open_source
from wcl.data.plain_images import BATCH
from wcl.evaluation.features import pixel_batches
from wcl.models.encoder import load
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_folder(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def photos_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(photos, tmp_path_factory.mktemp("runs") / "photos", epochs=1)


def config(data: Path | str, out: Path, **changes: str) -> EmbedConfig:
    return EmbedConfig(str(data), str(out), num_workers=0, **changes)  # type: ignore[arg-type]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def vectors_of(path: Path) -> Tensor:
    return torch.tensor(np.stack(pq.read_table(path)["vector"].to_numpy(zero_copy_only=False)))


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_vectors_are_those_of_embed_with_paths_and_classes(
    photos: Path, photos_run: Path, tmp_path: Path
) -> None:
    before = files_below(photos_run)
    table = pq.read_table(embed(photos_run, config(photos, tmp_path / "e.parquet")))
    assert table.column_names == ["path", "label", "vector"]
    paths = table["path"].to_pylist()
    assert paths == [str(path) for path in sorted(photos.rglob("*.jpg"))]
    assert table["label"].to_pylist() == ["cat"] * 12 + ["dog"] * 12
    expected = wcl.load(photos_run).embed(paths)
    assert torch.equal(vectors_of(tmp_path / "e.parquet"), expected)
    assert files_below(photos_run) == before
    assert [path.name for path in tmp_path.iterdir()] == ["e.parquet"]


def test_the_three_formats_agree_to_the_last_bit(digits_run: Path, tmp_path: Path) -> None:
    for kind in ("parquet", "npy", "csv"):
        embed(digits_run, config("digits", tmp_path / f"e.{kind}"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["e.csv", "e.npy", "e.parquet", "e.paths.csv"]
    table, array = pq.read_table(tmp_path / "e.parquet"), np.load(tmp_path / "e.npy")
    assert array.dtype == np.float32 and len(array) == 1297
    assert np.array_equal(vectors_of(tmp_path / "e.parquet").numpy(), array)
    lines, beside = read_csv(tmp_path / "e.csv"), read_csv(tmp_path / "e.paths.csv")
    columns = [f"v{i}" for i in range(array.shape[1])]
    assert np.array_equal(np.array([[np.float32(x[c]) for c in columns] for x in lines]), array)
    for column in ("path", "label"):
        values = table[column].to_pylist()
        assert values == [line[column] for line in lines] == [line[column] for line in beside]
    assert [int(line["row"]) for line in beside] == list(range(1297))


def test_data_without_labels_have_no_column_of_them(digits_run: Path, tmp_path: Path) -> None:
    data = flat_folder(tmp_path / "flat")
    out = embed(digits_run, config(data, tmp_path / "e.parquet"))
    assert pq.read_table(out).column_names == ["path", "vector"]


def test_splits_are_the_ones_of_the_data(digits_run: Path, tmp_path: Path) -> None:
    lengths = {}
    for split in ("train", "test", "all"):
        out = embed(digits_run, config("digits", tmp_path / f"{split}.parquet", split=split))
        lengths[split] = len(pq.read_table(out))
    assert lengths == {"train": 1297, "test": 500, "all": 1797}
    both = torch.cat([vectors_of(tmp_path / f"{split}.parquet") for split in ("train", "test")])
    assert torch.equal(vectors_of(tmp_path / "all.parquet"), both)
    data = flat_folder(tmp_path / "flat")
    with pytest.raises(InputError, match=r"--split: .* has no test split"):
        embed(digits_run, config(data, tmp_path / "e.parquet", split="test"))


def test_no_more_than_a_chunk_is_computed_before_it_is_handed_on(
    digits_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, source = load(digits_run), open_source("digits")
    monkeypatch.setattr(embed_app, "CHUNK", 2 * BATCH)
    asked = 0

    def counted(*arguments: Any) -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal asked
        for rows in torch.arange(len(source)).split(BATCH):
            asked += len(rows)
            yield source.pixels[rows], rows  # type: ignore[attr-defined]

    monkeypatch.setattr(embed_app, "pixel_batches", counted)
    given = 0
    for vectors, rows in chunks(encoder, source):
        assert len(vectors) <= 2 * BATCH
        given += len(rows)
        assert asked - given <= BATCH  # the batch that showed where the chunk ends
    assert given == len(source)


_KILLED = """
import os, signal, sys
from wcl.apps import embed as embed_app
from wcl.config import EmbedConfig

embed_app.CHUNK = embed_app.BATCH
add = embed_app.ChunkStore.add

def add_or_die(self, source, vectors, rows):
    if rows[0] == 3 * embed_app.CHUNK:
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, source, vectors, rows)

embed_app.ChunkStore.add = add_or_die
embed_app.embed(sys.argv[1], EmbedConfig("digits", sys.argv[2], split="all", num_workers=0))
"""


def test_killed_and_started_again_it_writes_the_same_file_as_undisturbed(
    digits_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, partial = tmp_path / "e.parquet", tmp_path / "e.parquet.partial"
    words = [sys.executable, "-c", _KILLED, str(digits_run), str(out)]
    assert subprocess.run(words).returncode == -signal.SIGKILL
    assert not out.exists()
    assert len(list(partial.glob("*.safetensors"))) == 3

    monkeypatch.setattr(embed_app, "CHUNK", BATCH)
    computed = 0

    def counted(*arguments: Any) -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal computed
        for batch in pixel_batches(*arguments):
            computed += len(batch[1])
            yield batch

    monkeypatch.setattr(embed_app, "pixel_batches", counted)
    embed(digits_run, config("digits", out, split="all"))
    assert computed == 1797 - 3 * BATCH
    assert "continuing after 768 of 1,797 images" in capsys.readouterr().err
    embed(digits_run, config("digits", tmp_path / "whole.parquet", split="all"))
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not partial.exists()


def stop_in_the_middle(run: Path, settings: EmbedConfig) -> None:
    """Press Ctrl-C when two chunks of BATCH images are finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed_app, "CHUNK", BATCH)
        add = ChunkStore.add

        def add_or_stop(store: ChunkStore, source: int, vectors: Tensor, rows: Tensor) -> None:
            if rows[0] == 2 * BATCH:
                raise KeyboardInterrupt
            add(store, source, vectors, rows)

        patch.setattr(ChunkStore, "add", add_or_stop)
        with pytest.raises(KeyboardInterrupt):
            embed(run, settings)


@pytest.mark.parametrize("other", ["encoder", "data"])
def test_what_is_left_of_another_encoder_or_other_data_is_not_gone_on_with(
    other: str,
    digits_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "e.npy"
    left = tiny_run(tmp_path / "other", epochs=1, seed=1) if other == "encoder" else digits_run
    stop_in_the_middle(left, config("digits", out, split="all" if other == "data" else "train"))
    assert "run the same command to continue" in capsys.readouterr().err
    monkeypatch.setattr(embed_app, "CHUNK", BATCH)
    embed(digits_run, config("digits", out))
    assert "starting over" in capsys.readouterr().err
    embed(digits_run, config("digits", tmp_path / "whole.npy"))
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_folder_that_was_just_begun_is_no_hindrance(digits_run: Path, tmp_path: Path) -> None:
    """As a kill or a full disk leaves it, before the first word is in it."""
    begun = tmp_path / "e.npy.partial"
    begun.mkdir()
    (begun / f".wcl-{'0' * 32}.tmp").touch()
    assert embed(digits_run, config("digits", tmp_path / "e.npy")).exists()
    assert not begun.exists()


def test_a_folder_of_the_user_is_never_taken_for_a_partial_one(
    digits_run: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "e.npy.partial" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(InputError, match="in the way"):
        embed(digits_run, config("digits", tmp_path / "e.npy"))
    assert mine.read_text() == "mine"


def test_unreadable_images_are_left_out_counted_and_named(
    photos_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = flat_folder(tmp_path / "flat", 8)
    for name in ("0.png", "3.png", "7.png"):
        (data / name).write_bytes(b"")
    out = embed(photos_run, config(data, tmp_path / "e.parquet"))
    paths = pq.read_table(out)["path"].to_pylist()
    assert paths == [str(data / f"{i}.png") for i in (1, 2, 4, 5, 6)]
    assert torch.equal(vectors_of(out), wcl.load(photos_run).embed(paths))
    said = capsys.readouterr().err
    assert "3 of 8 images cannot be read" in said
    assert all(f"{i}.png" in said for i in (0, 3, 7))
    for file in data.iterdir():
        file.write_bytes(b"")
    with pytest.raises(InputError, match="none of the 8 images asked for can be read"):
        embed(photos_run, config(data, tmp_path / "f.parquet"))
    assert not list(tmp_path.glob("f.*"))


def test_a_whole_chunk_of_unreadable_images_does_not_shift_the_others(
    digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    good = {5, 2 * BATCH + 3}
    for i in range(3 * BATCH):
        path = data / f"{i:04d}.png"
        picture(i).save(path) if i in good else path.touch()
    monkeypatch.setattr(embed_app, "CHUNK", BATCH)
    out = embed(digits_run, config(data, tmp_path / "e.parquet"))
    names = [Path(path).stem for path in pq.read_table(out)["path"].to_pylist()]
    assert [int(name) for name in names] == sorted(good)


def test_names_may_be_anything(photos_run: Path, tmp_path: Path) -> None:
    root = os.fsencode(tmp_path) + b"/data"
    names = [b"a\nb", b'say "x", y', b"caf\xe9", "日本".encode()]
    for name in names:
        os.makedirs(root + b"/" + name)  # noqa: PTH103
        picture(1).save(Path(os.fsdecode(root + b"/" + name + b"/" + name + b".png")))
    data = os.fsdecode(root)
    for kind in ("parquet", "npy", "csv"):
        embed(photos_run, config(data, tmp_path / f"e.{kind}"))
    table = pq.read_table(tmp_path / "e.parquet").to_pydict()
    texts = sorted(name.decode(errors="replace") for name in names)
    assert sorted(table["label"]) == texts
    assert sorted(Path(path).stem for path in table["path"]) == texts
    for file in ("e.csv", "e.paths.csv"):
        assert [line["path"] for line in read_csv(tmp_path / file)] == table["path"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "e.txt"], "must be a .parquet or .npy or .csv file"),
        (["--out", "nowhere/e.npy"], "in a folder that exists"),
        ([], "--out"),
        (["--out", "taken.csv"], "taken.csv: exists already"),
        (["--out", "beside.npy"], "beside.paths.csv: exists already"),
        (["--out", "e.csv", "--split", "val"], "--split: val is not one of train, test, all"),
        (["--out", "e.csv", "--data", "nothing"], "nothing: no such data"),
        (["--out", "e.csv", "--data", ""], "--data"),
        (["--out", "file.csv"], "file.csv.partial: is in the way"),
        (["--out", "link.csv"], "link.csv.partial: is in the way"),
        (["--out", "nowhere.csv"], "nowhere.csv: a broken link"),
        (["--out", "x" * 300 + ".csv"], "too long for a file name"),
        (["--out", "x" * 250 + ".csv"], "too long for a file name"),
        (["--out", "e.csv", "--data", "x" * 300], "too long for a file name"),
        (["--out", "e.csv", "--data", "no\nsuch"], "no such: no such data"),
        (["--out", "e.csv", "--threads", "-1"], "--threads: must be between 0 and"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: list[str],
    says: str,
    digits_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("taken.csv", "beside.paths.csv", "file.csv.partial"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "link.csv.partial").symlink_to(tmp_path)
    (tmp_path / "nowhere.csv").symlink_to("unmounted")
    before = files_below(tmp_path)
    assert run_command(["embed", str(digits_run), "--data", "digits", *words]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1
    assert files_below(tmp_path) == before


def test_it_computes_with_as_many_threads_as_asked_for(digits_run: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            out = tmp_path / f"{threads}.npy"
            embed(digits_run, EmbedConfig("digits", str(out), threads=threads))
            assert torch.get_num_threads() == threads
            wcl.evaluate(digits_run, "knn", "digits", threads=3 - threads)
            assert torch.get_num_threads() == 3 - threads
    finally:
        torch.set_num_threads(before)


def test_the_command_says_what_it_wrote(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "e.npy"
    assert run_command(["embed", str(digits_run), "--data", "digits", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: 1,297 vectors of 128 numbers\n"
    assert CHUNK % BATCH == 0
