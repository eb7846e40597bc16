"""What `--data` understands: digits, CIFAR, folders, parquet, Hugging Face."""

import functools
import hashlib
import json
import os
import pickle
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torchvision.datasets import CIFAR10

from images import encoded, flat_folder, photo_folder, picture
from wcl.data import (
    ArraySource,
    first_classes,
    held_out,
    in_memory,
    limited,
    open_source,
    open_splits,
    subset,
    with_format,
)
from wcl.data.decode import UnreadableImage, whole_pixels
from wcl.data.huggingface import HuggingFaceSource
from wcl.system.errors import InputError

SHARED = Path(__file__).parents[3] / "shared" / "data"


def write_parquet(path: Path, images: list[bytes | None], labels: list[Any] | None = None) -> Path:
    rows = [{"bytes": content, "path": f"{i}.png"} for i, content in enumerate(images)]
    columns: dict[str, Any] = {"image": rows}
    if labels is not None:
        columns["label"] = labels
    pq.write_table(pa.table(columns), path)
    return path


def small_pngs(count: int, size: int = 16) -> list[bytes | None]:
    return [encoded(picture(i, size, size)) for i in range(count)]


def test_digits_are_split_without_overlap_and_stay_the_same() -> None:
    train, test = open_splits("digits")
    assert (len(train), len(test)) == (1297, 500)
    assert isinstance(train, ArraySource)
    assert isinstance(test, ArraySource)
    assert train.pixels.shape[1:] == (1, 32, 32)
    seen = {image.numpy().tobytes() for image in train.pixels}
    assert not any(image.numpy().tobytes() in seen for image in test.pixels)
    assert torch.equal(open_splits("digits")[1].labels, test.labels)  # type: ignore[arg-type]


def test_sub_folders_are_classes_in_sorted_order(tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data", ("zebra", "ant", "bee"), 3)))
    assert source.classes == ["ant", "bee", "zebra"]
    assert source.labels is not None
    assert source.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert source.where(0).endswith("ant/000.jpg")


def test_deeper_folders_belong_to_the_first_level(tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", ("a/x", "a/y", "b/x"), 2)
    source = open_source(str(root))
    assert source.classes == ["a", "b"]


@pytest.mark.parametrize("mixed", [False, True])
def test_a_flat_folder_has_no_labels(mixed: bool, tmp_path: Path) -> None:
    root = flat_folder(tmp_path / "data")
    if mixed:
        photo_folder(root / "more", each=2)
    source = open_source(str(root))
    assert source.labels is None
    assert list(source.classes) == []


def test_a_single_sub_folder_is_no_class(tmp_path: Path) -> None:
    assert open_source(str(photo_folder(tmp_path / "data", ("one",), 3))).labels is None


def test_train_and_test_folders_are_splits(tmp_path: Path) -> None:
    photo_folder(tmp_path / "train", each=4)
    photo_folder(tmp_path / "val", each=2)
    train, test = open_splits(str(tmp_path))
    assert (len(train), len(test)) == (8, 4)
    assert len(open_source(str(tmp_path))) == 8


def test_without_a_test_split_a_fifth_of_every_class_is_held_out(tmp_path: Path) -> None:
    train, test = open_splits(str(photo_folder(tmp_path / "data", each=10)))
    assert test.labels is not None
    assert torch.bincount(test.labels).tolist() == [2, 2]
    names = {train.where(i) for i in range(len(train))} | {test.where(i) for i in range(len(test))}
    assert len(names) == 20


def test_links_that_loop_end_and_hidden_files_are_left_out(tmp_path: Path) -> None:
    root = flat_folder(tmp_path / "data", 3)
    (root / "again").symlink_to(root)
    picture(0).save(root / ".hidden.png")
    assert len(open_source(str(root))) == 3


def with_class_names(path: Path, names: list[str]) -> Path:
    """The parquet file with names for its class numbers, as Hugging Face writes them."""
    info = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
    metadata = {b"huggingface": json.dumps(info).encode()}
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)
    return path


def test_parquet_keeps_order_labels_and_class_names(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "train.parquet", small_pngs(6), [1, 0, 1, 0, 1, 0])
    source = open_source(str(with_class_names(path, ["cat", "dog"])))
    assert source.classes == ["cat", "dog"]
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0, 1, 0, 1, 0]
    expected = whole_pixels(picture(2, 16, 16))
    assert torch.equal(whole_pixels(source.image(2)), expected)


def test_images_of_parquet_files_are_located_by_file_and_row(tmp_path: Path) -> None:
    images = small_pngs(5)
    first = write_parquet(tmp_path / "train-0.parquet", images[:2])
    last = write_parquet(tmp_path / "train-1.parquet", images[2:])
    source = open_source(str(tmp_path))
    assert [source.where(row) for row in range(5)] == [
        *(f"{first} row {row}" for row in (0, 1)),
        *(f"{last} row {row}" for row in (0, 1, 2)),
    ]


def test_parquet_folders_have_splits_over_several_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-00000.parquet", small_pngs(4), [0, 1, 0, 1])
    write_parquet(tmp_path / "train-00001.parquet", small_pngs(2), [0, 1])
    write_parquet(tmp_path / "test.parquet", small_pngs(3), [0, 1, 1])
    train, test = open_splits(str(tmp_path))
    assert (len(train), len(test)) == (6, 3)


@pytest.mark.parametrize("labels", [None, [-1, -1, -1], [None, 1, 0]])
def test_parquet_without_usable_labels_has_none(labels: list[Any] | None, tmp_path: Path) -> None:
    source = open_source(str(write_parquet(tmp_path / "x.parquet", small_pngs(3), labels)))
    assert source.labels is None


def test_parquet_of_words_is_labeled_by_them(tmp_path: Path) -> None:
    source = open_source(str(write_parquet(tmp_path / "x.parquet", small_pngs(3), ["b", "a", "b"])))
    assert source.classes == ["a", "b"]


def test_small_images_of_one_size_come_into_memory_and_others_do_not(tmp_path: Path) -> None:
    small = open_source(str(write_parquet(tmp_path / "s.parquet", small_pngs(5), [0, 1, 0, 1, 0])))
    loaded = in_memory(small)
    assert isinstance(loaded, ArraySource)
    assert torch.equal(loaded.pixels[3], whole_pixels(small.image(3)))
    mixed: list[bytes | None] = [*small_pngs(40), encoded(picture(0, 16, 17))]
    odd = open_source(str(write_parquet(tmp_path / "m.parquet", mixed)))
    assert in_memory(odd) is odd


def test_unreadable_images_in_memory_keep_their_number(tmp_path: Path) -> None:
    images = small_pngs(5)
    images[1], images[3] = b"broken", None
    source = in_memory(open_source(str(write_parquet(tmp_path / "x.parquet", images))))
    assert isinstance(source, ArraySource)
    assert sorted(source.unreadable) == [1, 3]
    part = subset(source, np.array([3, 4]))
    assert isinstance(part, ArraySource)
    assert sorted(part.unreadable) == [0]


def test_hugging_face_data_sets_open_by_name(tmp_path: Path) -> None:
    """A folder is a data set to the library too, so no download is needed to test it."""
    pytest.importorskip("datasets", reason="needs the optional datasets library")
    photo_folder(tmp_path / "data" / "train", each=3)
    photo_folder(tmp_path / "data" / "test", each=2)
    train, test = open_splits(f"hf:{tmp_path / 'data'}")
    assert (len(train), len(test)) == (6, 4)
    assert list(train.classes) == ["cat", "dog"]
    assert whole_pixels(train.image(0)).shape[0] == 3


def test_an_unknown_hugging_face_name_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets", reason="needs the optional datasets library")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot open it"):
        open_source(f"hf:{tmp_path / 'nothing'}")


def fake_cifar(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set in CIFAR-10's layout with ten images a batch, and its own MD5 sums."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)

    def write(name: str, content: dict[str, Any]) -> str:
        (folder / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    def batch() -> dict[str, Any]:
        data = generator.integers(0, 256, (10, 3072), dtype=np.uint8)
        return {"data": data, "labels": list(range(10))}

    names = [name for name, _ in CIFAR10.train_list]
    monkeypatch.setattr(CIFAR10, "train_list", [[n, write(n, batch())] for n in names])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", write("test_batch", batch())]])
    classes = {"label_names": [f"class {i}" for i in range(10)]}
    meta = {**CIFAR10.meta, "md5": write("batches.meta", classes)}
    monkeypatch.setattr(CIFAR10, "meta", meta)


def test_cifar_is_read_from_torchvisions_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WCL_DATA", str(tmp_path))
    fake_cifar(tmp_path, monkeypatch)
    train, test = open_splits("cifar10")
    assert (len(train), len(test)) == (50, 10)
    assert isinstance(train, ArraySource)
    assert train.pixels.shape[1:] == (3, 32, 32)
    assert train.classes[3] == "class 3"


def test_cifar_needs_no_home_where_its_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("WCL_DATA", raising=False)
    with pytest.raises(InputError, match=r"cifar10: .*no home folder.*WCL_DATA"):
        open_source("cifar10")
    monkeypatch.setenv("WCL_DATA", str(tmp_path))
    fake_cifar(tmp_path, monkeypatch)
    assert len(open_source("cifar10")) == 50


@pytest.fixture
def wrong_archive(tmp_path: Path) -> Iterator[str]:
    """The address of a server that has something else under CIFAR's name."""
    (tmp_path / "cifar.tar.gz").write_bytes(b"something else")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/cifar.tar.gz"
        server.shutdown()


def test_a_wrong_download_is_refused_by_its_checksum(
    wrong_archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WCL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(CIFAR10, "url", wrong_archive)
    with pytest.raises(InputError, match=r"cifar10: could not be downloaded.*corrupted"):
        open_source("cifar10")


def test_no_network_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WCL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")  # nobody listens there
    with pytest.raises(InputError, match=r"cifar10: could not be downloaded"):
        open_source("cifar10")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("cifar-10", "did you mean cifar10"),
        ("/nowhere/at/all", "no such data"),
        ("", "no such data"),
    ],
)
def test_data_that_do_not_exist_are_named(spec: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        open_source(spec)


def test_a_folder_without_images_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(InputError, match=r"no images below.*\.jpg"):
        open_source(str(tmp_path))


def test_files_that_are_not_parquet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        open_source(str(tmp_path / "x.parquet"))
    (tmp_path / "x.zip").write_bytes(b"zip")
    with pytest.raises(InputError, match=r"must be \.parquet"):
        open_source(str(tmp_path / "x.zip"))
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="no column of images"):
        open_source(str(tmp_path / "t.parquet"))


def test_limited_draws_once_from_the_seed_and_keeps_the_order() -> None:
    whole = open_source("digits")
    a, b, c = limited(whole, 100, 0), limited(whole, 100, 0), limited(whole, 100, 1)
    assert len(a) == 100
    assert torch.equal(a.labels, b.labels)  # type: ignore[arg-type]
    assert not torch.equal(a.labels, c.labels)  # type: ignore[arg-type]
    assert limited(whole, 0, 0) is whole


def test_a_class_of_one_image_is_never_held_out(tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", ("many",), 10)
    photo_folder(tmp_path / "more", ("one",), 1)
    (tmp_path / "more" / "one").rename(root / "one")
    train, test = open_splits(str(root))
    assert train.labels is not None
    assert test.labels is not None
    assert train.labels.unique().tolist() == [0, 1]
    assert test.labels.unique().tolist() == [0]


def test_a_fingerprint_changes_with_the_images_alone(tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", each=3)
    before = open_source(str(root)).fingerprint()
    assert open_source(str(root)).fingerprint() == before
    (root / "cat" / "000.jpg").rename(root / "cat" / "renamed.jpg")
    assert open_source(str(root)).fingerprint() != before
    digits = open_source("digits")
    assert digits.fingerprint() == open_source("digits").fingerprint()
    assert digits.fingerprint() != limited(digits, 1296, 0).fingerprint()


def test_names_that_are_not_text_can_be_used_and_printed(tmp_path: Path) -> None:
    root = flat_folder(tmp_path / "data", 2)
    odd = os.path.join(os.fsencode(root), b"\xff\xfe.png")  # noqa: PTH118
    os.rename(os.path.join(os.fsencode(root), b"0.png"), odd)  # noqa: PTH104, PTH118
    source = open_source(str(root))
    assert [whole_pixels(source.image(i)).shape[0] for i in range(2)] == [3, 3]
    assert "".join(source.where(i) for i in range(2)).encode()


def test_gray_and_color_are_converted() -> None:
    gray = open_source("digits")
    color = with_format(gray, 3)
    assert isinstance(gray, ArraySource)
    assert isinstance(color, ArraySource)
    assert color.pixels.shape == (1297, 3, 32, 32)
    again = with_format(color, 1)
    assert isinstance(again, ArraySource)
    assert torch.equal(again.pixels, gray.pixels)


def test_hugging_face_rows_that_are_damaged_are_unreadable(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the optional datasets library")
    write_parquet(tmp_path / "train.parquet", [encoded(picture(0)), b"damaged", None], [0, 1, 0])
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_parquet(str(tmp_path / "train.parquet"), features=features)
    source = HuggingFaceSource("hf:x", data)
    assert whole_pixels(source.image(0)).shape == (3, 48, 64)
    for index in (1, 2):
        with pytest.raises(UnreadableImage):
            source.image(index)


def test_held_out_is_a_partition() -> None:
    train, test = held_out(open_source("digits"), 0.3)
    assert len(train) + len(test) == 1297
    assert abs(len(test) / 1297 - 0.3) < 0.01


def test_a_file_that_vanishes_is_unreadable(tmp_path: Path) -> None:
    source = open_source(str(flat_folder(tmp_path / "data")))
    Path(source.where(0)).unlink()
    with pytest.raises(UnreadableImage, match="no such file"):
        source.image(0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs CIFAR-10 as parquet in ../shared/data")
def test_the_real_cifar10_as_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # large enough to have its index kept
    train, test = open_splits(str(SHARED / "cifar10"))
    assert (len(train), len(test)) == (50000, 10000)
    assert test.labels is not None
    assert torch.bincount(test.labels).tolist() == [1000] * 10
    assert whole_pixels(test.image(0)).shape == (3, 32, 32)


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    root = flat_folder(tmp_path / "data", 2)
    os.mkfifo(root / "pipe.jpg")
    (root / "itself.jpg").symlink_to(root / "itself.jpg")
    (root / "nowhere.jpg").symlink_to(root / "gone.jpg")
    assert len(open_source(str(root))) == 2


@pytest.mark.parametrize("labels", [[0, 2**62], [0, 5_000_000]])
def test_a_label_that_is_no_class_number_is_refused(labels: list[int], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too large for a class number"):
        open_source(str(write_parquet(tmp_path / "x.parquet", small_pngs(2), labels)))


def test_bytes_that_are_text_are_no_images(tmp_path: Path) -> None:
    rows = [{"bytes": "/etc/passwd", "path": "x"}]
    pq.write_table(pa.table({"image": rows}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="no column of images"):
        open_source(str(tmp_path / "x.parquet"))


def test_a_parquet_file_with_other_images_has_another_fingerprint(tmp_path: Path) -> None:
    a = open_source(str(write_parquet(tmp_path / "a.parquet", small_pngs(3))))
    b = open_source(str(write_parquet(tmp_path / "b.parquet", small_pngs(4)[1:])))
    assert a.fingerprint() != b.fingerprint()


def test_the_first_classes_are_those_of_the_first_names(tmp_path: Path) -> None:
    """By name and not by number, numbered anew, the images in their old order."""
    path = write_parquet(tmp_path / "x.parquet", small_pngs(8), [0, 1, 2, 3, 0, 1, 2, 3])
    source = open_source(str(with_class_names(path, ["zebra", "bee", "cow", "ant"])))
    for opened in (source, in_memory(source)):
        chosen = first_classes(opened, 2)
        assert list(chosen.classes) == ["ant", "bee"]
        assert chosen.labels is not None
        assert chosen.labels.tolist() == [1, 0, 1, 0]
        assert len(chosen) == 4
        for new, old in enumerate([1, 3, 5, 7]):
            expected = whole_pixels(picture(old, 16, 16))
            assert torch.equal(whole_pixels(chosen.image(new)), expected)


def test_the_first_classes_of_a_folder_are_its_first_sub_folders(tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data", ("zebra", "ant", "bee"), 3)))
    chosen = first_classes(source, 2)
    names = [Path(chosen.where(i)).parent.name for i in range(len(chosen))]
    assert names == ["ant"] * 3 + ["bee"] * 3
    assert chosen.fingerprint() != source.fingerprint()


def test_no_number_of_classes_is_all_of_them_and_all_of_them_is_the_same() -> None:
    digits = open_source("digits")
    assert first_classes(digits, 0) is digits
    assert first_classes(digits, 10).fingerprint() == digits.fingerprint()
    assert digits.labels is not None
    three = first_classes(digits, 3)
    assert len(three) == int((digits.labels < 3).sum())
    assert len(limited(three, 20, 0)) == 20


def test_unreadable_images_of_the_first_classes_stay_unreadable(tmp_path: Path) -> None:
    images = small_pngs(6)
    images[1], images[4] = b"broken", None
    path = write_parquet(tmp_path / "x.parquet", images, ["b", "b", "a", "c", "a", "b"])
    chosen = first_classes(in_memory(open_source(str(path))), 2)
    assert isinstance(chosen, ArraySource)
    assert sorted(chosen.unreadable) == [1, 3]  # of the images 0, 1, 2, 4 and 5


def test_classes_that_do_not_exist_cannot_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--classes: digits has only 10 classes"):
        first_classes(open_source("digits"), 11)
    with pytest.raises(InputError, match="has no labels"):
        first_classes(open_source(str(flat_folder(tmp_path / "flat"))), 1)
