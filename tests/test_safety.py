"""Untrusted files: nothing in them is executed, nothing leaves its folder, no network is used.

Every test sets a trap that springs if the file is unpickled, imported or unpacked carelessly.
"""

import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import wcl
from checkpoints import CONFIG, save, state
from images import encoded, photo_folder, picture
from runs import tiny_run
from wcl.config.layering import settings
from wcl.data import index_cache, open_source
from wcl.data.decode import UnreadableImage
from wcl.methods import method_settings
from wcl.system.errors import InputError
from wcl.training.checkpoint import load_checkpoint, save_checkpoint


class Trap:
    """Unpickling one makes a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.place),)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "sprung")


@pytest.fixture(autouse=True)
def nothing_was_run(trap: Trap) -> Iterator[None]:
    yield
    assert not trap.place.exists()


def test_the_trap_works(tmp_path: Path) -> None:
    place = tmp_path / "sprung by us"
    pickle.loads(pickle.dumps(Trap(place)))
    assert place.is_dir()


def sealed(content: bytes) -> bytes:
    """As a checkpoint is, so that its digest is right."""
    return content + b"wcl sha256 " + hashlib.sha256(content).digest()


def test_a_checkpoint_is_not_unpickled(trap: Trap, tmp_path: Path) -> None:
    saved = io.BytesIO()
    torch.save({"format": 3, "config": {}, **state(1), "monitor": {"x": trap}}, saved)
    for content in (saved.getvalue(), pickle.dumps(trap), pickle.dumps({"format": 3, "x": trap})):
        (tmp_path / "last.ckpt").write_bytes(sealed(content))
        with pytest.raises(InputError, match="not a checkpoint"):
            load_checkpoint(tmp_path / "last.ckpt", CONFIG)


def test_the_checkpoint_before_it_is_not_unpickled_either(trap: Trap, tmp_path: Path) -> None:
    save(tmp_path, 1).write_bytes(b"damaged")
    (tmp_path / "previous.ckpt").write_bytes(sealed(pickle.dumps(trap)))
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "last.ckpt", CONFIG)
    save_checkpoint(state(2), CONFIG, tmp_path / "last.ckpt")  # which looks at the old ones


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt", "x.onnx", "x.ckpt", "x"])
@pytest.mark.parametrize("by", ["pickle", "torch"])
def test_an_encoder_is_not_unpickled(name: str, by: str, trap: Trap, tmp_path: Path) -> None:
    if by == "torch":
        torch.save({"weight": trap}, tmp_path / name)
    else:
        (tmp_path / name).write_bytes(pickle.dumps(trap))
    with pytest.raises(InputError):
        wcl.load(tmp_path / name)
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / name).rename(run / "encoder.safetensors")
    with pytest.raises(InputError):
        wcl.load(run)


def test_what_a_torchscript_file_pickles_is_not_unpickled(trap: Trap, tmp_path: Path) -> None:
    """torch reads it with a reader of its own, that knows numbers and tensors alone."""
    whole = wcl.export(tiny_run(tmp_path / "run", epochs=1), "torchscript", tmp_path / "whole.pt")
    for name in ("data.pkl", "constants.pkl"):
        changed = tmp_path / f"changed {name}.pt"
        with zipfile.ZipFile(whole) as source, zipfile.ZipFile(changed, "w") as target:
            for entry in source.infolist():
                evil = entry.filename.endswith(f"/{name}")
                target.writestr(entry, pickle.dumps(trap, 2) if evil else source.read(entry))
        with pytest.raises(InputError, match="damaged"):
            wcl.load(changed)


def test_a_kept_index_is_not_unpickled(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    index_cache.save("folder", b"key", {"names": np.array([1])})
    (file,) = tmp_path.rglob("*.npz")
    assert index_cache.load("folder", b"key", dict) is not None
    np.savez(file, names=np.array([trap], dtype=object))
    assert index_cache.load("folder", b"key", dict) is None


def test_cifars_files_are_opened_only_if_they_are_the_published_ones(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import CIFAR10

    monkeypatch.setenv("WCL_DATA", str(tmp_path))
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/x.tar.gz")  # nobody listens there
    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    for name in [n for n, _ in CIFAR10.train_list + CIFAR10.test_list] + ["batches.meta"]:
        (folder / name).write_bytes(pickle.dumps(trap))
    with pytest.raises(InputError, match="could not be downloaded"):
        open_source("cifar10")


def test_an_archive_that_is_not_the_published_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write beside the folder that it is unpacked in."""
    from torchvision.datasets import CIFAR10

    served, cache = tmp_path / "served", tmp_path / "cache"
    served.mkdir()
    with tarfile.open(served / "cifar.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("../sprung")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    monkeypatch.setenv("WCL_DATA", str(cache))
    handler = partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/cifar.tar.gz"
        monkeypatch.setattr(CIFAR10, "url", address)
        with pytest.raises(InputError, match="corrupted"):
            open_source("cifar10")
        server.shutdown()
    assert (cache / CIFAR10.filename).read_bytes() == (served / "cifar.tar.gz").read_bytes()


def test_parquet_is_not_unpickled(trap: Trap, tmp_path: Path) -> None:
    """Neither the bytes of an image, nor what Arrow once unpickled as the type of a column."""
    rows = [{"bytes": pickle.dumps(trap), "path": "0.png"}]
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(trap),
    }
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [pa.field("image", kind), pa.field("label", pa.int64(), metadata=metadata)]
    table = pa.table([pa.array(rows, kind), pa.array([0])], schema=pa.schema(fields))
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(UnreadableImage, match="not an image"):
        open_source(str(tmp_path / "x.parquet")).image(0)


def test_a_hugging_face_folder_is_neither_run_nor_unpickled(trap: Trap, tmp_path: Path) -> None:
    """It may hold a script with its own name, which the library once ran to make the data."""
    pytest.importorskip("datasets", reason="needs the optional datasets library")
    folder = tmp_path / "birds"
    (folder / "train").mkdir(parents=True)
    script = f"import os\nos.mkdir({str(trap.place)!r})\n"
    for name in ("dataset.py", "__init__.py", "train/birds.py"):
        (folder / name).write_text(script)
    for name in ("train.pkl", "train/x.pkl", "train/x.pickle", "train/x.npy"):
        (folder / name).write_bytes(pickle.dumps(trap))
    with pytest.raises(InputError, match="cannot open it"):
        open_source(f"hf:{folder}")
    for number in range(2):
        (folder / "train" / f"{number}.png").write_bytes(encoded(picture(number)))
    assert len(open_source(f"hf:{folder}")) == 2
    (folder / "birds.py").write_text(script)
    with pytest.raises(InputError, match="cannot open it"):
        open_source(f"hf:{folder}")


@pytest.mark.parametrize("resume", [False, True])
def test_settings_make_no_objects(resume: bool, trap: Trap, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    spec = f"{{class_path: os.mkdir, init_args: {{path: {trap.place}}}}}"
    for text in (
        f"epochs: !!python/object/apply:os.mkdir [{trap.place}]",
        f"epochs: !!python/object/new:os.mkdir [{trap.place}]",
        f"loss: {spec}",
        f"loss: {{temperature: {spec}}}",
        f"optim: {spec}",
    ):
        file.write_text(text)
        with pytest.raises(InputError):
            settings("", {"out": str(tmp_path)}, method_settings, resume, files=[file])


def test_annotations_cannot_name_files_or_grow(tmp_path: Path) -> None:
    from voc_kit import voc_kit

    root = voc_kit(tmp_path / "kit", {"trainval": {"000001": ["cat"], "000002": ["dog"]}})
    laughs = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    for declared in ('<!ENTITY a9 SYSTEM "file:///etc/passwd">', f'<!ENTITY a0 "ha">{laughs}'):
        text = f"<!DOCTYPE annotation [{declared}]><annotation><object><name>&a9;</name></object>"
        (root / "VOC2007" / "Annotations" / "000002.xml").write_text(text + "</annotation>")
        source = open_source(str(root))
        assert len(source) == 1
        assert "passwd" not in "".join(source.classes)


_NO_NETWORK = """
import os, socket

def refused(*args, **kwargs):
    with open(os.environ["ASKED"], "a") as file:
        file.write(repr(args[1:]) + "\\n")
    raise OSError("a test allows no network")

class Local(socket.socket):
    def connect(self, address):
        return super().connect(address) if self.family == socket.AF_UNIX else refused(self, address)

    def connect_ex(self, address):
        return self.connect(address)

socket.socket = Local
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = refused
"""
_COMMANDS = """
import sys
from wcl.cli import run_command
out, photos = sys.argv[1:]
tiny = ["--batch_size", "32", "--epochs", "1"]
tiny += ["--model.head_hidden_dim", "32", "--model.head_out_dim", "16"]
small = ["--image_size", "32", "--num_workers", "1", "--batch_size", "8"]
small += ["--model.backbone", "resnet18"]
small += ["--epochs", "1"]
for words in (
    ["data", photos],
    ["pretrain", "digits", "--out", f"{out}/a", "--limit", "128", *tiny],
    ["pretrain", "folder", "--data", photos, "--out", f"{out}/b", *small],
    ["pretrain", "--out", f"{out}/a", "--resume"],
    ["eval", "knn", f"{out}/a", "--data", "digits", "--json"],
    ["embed", f"{out}/b", "--data", photos, "--out", f"{out}/vectors.npy"],
    ["export", f"{out}/b", "--to", "timm"],
    ["export", f"{out}/b", "--to", "hub-folder"],
    ["export", f"{out}/b", "--to", "torchscript"],
):
    status = run_command(words)
    assert status == 0, (words, status)
"""


def without_network() -> list[str]:
    """How to start a program for which there is no network at all, where that is allowed."""
    try:
        allowed = subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    return ["unshare", "-n"] if allowed else []


def test_no_command_asks_the_network(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NO_NETWORK)
    photos = photo_folder(tmp_path / "photos")
    asked = tmp_path / "asked"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ASKED": str(asked)}
    command = [*without_network(), sys.executable, "-c", _COMMANDS, str(tmp_path / "out")]
    command += [str(photos)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not asked.exists(), asked.read_text()


def test_the_hub_that_does_not_answer_is_one_line_and_is_asked_once(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="needs the optional datasets library")
    (tmp_path / "sitecustomize.py").write_text(_NO_NETWORK)
    asked = tmp_path / "asked"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ASKED": str(asked)}
    environment |= {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "wcl", "data", "hf:somebody/something"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "wcl: hf:somebody/something: the datasets library cannot open it (the hub cannot be "
        "reached, and it was not downloaded before)"
    ]
    assert len(asked.read_text().splitlines()) == 1
