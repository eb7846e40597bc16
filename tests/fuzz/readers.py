"""What is fuzzed: for every kind of file whole ones, and how the project reads them."""

import dataclasses
import hashlib
import io
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, features
from safetensors.torch import save

import wcl
from checkpoints import CONFIG, state
from images import encoded, picture
from voc_kit import annotation
from wcl.config import ModelConfig
from wcl.config.layering import settings
from wcl.config.recipes import recipe_file, recipe_names
from wcl.data.cifar import cifar
from wcl.data.crops import cut_boxes, reduced, reduction
from wcl.data.decode import UnreadableImage, center_crop, open_image, upright_size
from wcl.data.heif import register_heif
from wcl.data.parquet import ParquetSource
from wcl.data.voc import VocSource
from wcl.methods import method_settings
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.models.pretrained import input_format, load_weights
from wcl.training.checkpoint import load_checkpoint, save_checkpoint


@dataclass(frozen=True)
class Reader:
    """One kind of file."""

    samples: Callable[[], list[bytes]]
    """Whole files."""
    read: Callable[[Path], object]
    """Read a file that may be damaged; raises nothing but InputError and UnreadableImage."""
    name: str = "case"
    """Of the file, for those that are known by it."""
    words: list[bytes] = field(default_factory=list)
    """What means something in such a file."""
    seal: Callable[[bytes], bytes] = bytes
    """Mend checksums, or damage would go no further than these."""
    refuses_all: bool = False
    """Whether it sees every change."""


def read_image(path: Path) -> None:
    """As evaluation does, and as training does, both from bytes and from the file."""
    center_crop(open_image(path), 32)
    content = path.read_bytes()
    image = open_image(content)
    boxes = np.array([[0, 0, *upright_size(image)]])
    cut_boxes(reduced(image, reduction(boxes, [16]), channels=1), boxes, [16])


def read_five_channels(path: Path) -> None:
    center_crop(open_image(path), 32, 5, ((0, 4000),))
    image = open_image(path.read_bytes())
    boxes = np.array([[0, 0, *upright_size(image)]])
    cut_boxes(reduced(image, reduction(boxes, [16]), 5), boxes, [16])


def five_channels() -> list[bytes]:
    """As satellites, scanners and ImageJ store them."""
    from tifffile import imwrite

    values = np.random.default_rng(0).integers(0, 4000, (5, 24, 30)).astype(np.uint16)
    layouts: list[dict[str, Any]] = [
        {"planarconfig": "separate", "photometric": "minisblack", "compression": method}
        for method in (None, "zlib", "lzw", "packbits", "zstd")
    ]
    layouts[1]["predictor"] = layouts[2]["predictor"] = True
    layouts.append({"planarconfig": "separate", "photometric": "minisblack", "tile": (16, 16)})
    layouts += [{"imagej": True, "metadata": {"axes": "CYX"}}]
    layouts += [{"ome": True, "metadata": {"axes": "CYX"}}]
    files = []
    for layout in layouts:
        file = io.BytesIO()
        imwrite(file, values, **layout)
        files.append(file.getvalue())
    return files


def pictures(kind: str, modes: tuple[str, ...] = ("RGB", "L")) -> Callable[[], list[bytes]]:
    def make() -> list[bytes]:
        made = [encoded(picture(1).convert(mode), kind) for mode in modes]
        if kind in ("GIF", "WEBP", "PNG", "TIFF"):  # with several frames
            file = io.BytesIO()
            picture(2, 20, 30).save(file, kind, save_all=True, append_images=[picture(3, 20, 30)])
            made.append(file.getvalue())
        if kind in ("JPEG", "PNG", "WEBP", "TIFF"):
            exif = Image.Exif()
            exif[0x0112] = 6
            file = io.BytesIO()
            picture(4).save(file, kind, exif=exif)
            made.append(file.getvalue())
        return made

    return make


def with_png_checksums(content: bytes) -> bytes:
    """The chunks of a PNG file with the checksums that belong to what is in them now."""
    file = io.BytesIO(content)
    mended = file.read(8)
    while len(header := file.read(8)) == 8:
        (length,) = struct.unpack(">I", header[:4])
        body = file.read(min(length, len(content)))
        file.read(4)
        mended += header + body + struct.pack(">I", zlib.crc32(header[4:] + body))
    return mended


def parquet_files() -> list[bytes]:
    rows = [{"bytes": encoded(picture(i, 8, 8)), "path": f"{i}.png"} for i in range(6)]
    tables = [pa.table({"image": rows, "label": [0, 1] * 3}), pa.table({"image": rows})]
    files = []
    for table in tables:
        for compression in ("snappy", "none"):
            file = io.BytesIO()
            pq.write_table(table, file, compression=compression)
            files.append(file.getvalue())
    return files


def read_parquet(path: Path) -> None:
    source = ParquetSource("case", [path])
    for index in range(min(len(source), 20)):
        try:
            center_crop(source.image(index), 8)
        except UnreadableImage:
            continue
    source.fingerprint(times=True)


def small_encoder() -> Encoder:
    model = ModelConfig(backbone="conv_tiny", head_hidden_dim=8, head_out_dim=4)
    return Encoder(Description(model, ("g",), 1, 16, (0.5,), (0.5,)))


def written(write: Callable[[Path], object]) -> bytes:
    """The content of a file that can only be had on disk."""
    path = Path("written")
    write(path)
    content = path.read_bytes()
    path.unlink()
    return content


def encoder_files() -> list[bytes]:
    encoder = small_encoder()
    return [written(encoder.save), written(encoder.save_backbone)]


def checkpoint_files() -> list[bytes]:
    return [written(lambda path: save_checkpoint(state(3), CONFIG, path))]


def read_checkpoint(path: Path) -> None:
    found = load_checkpoint(path, CONFIG)
    assert found is not None
    for tensor in found["method"].values():
        if isinstance(tensor, torch.Tensor):
            tensor.double().sum()  # every byte is there


def with_digest(content: bytes) -> bytes:
    content = content[: -len(_SEAL_AND_DIGEST)]
    return content + b"wcl sha256 " + hashlib.sha256(content).digest()


_SEAL_AND_DIGEST = b"wcl sha256 " + bytes(32)


def cifar_batches() -> list[bytes]:
    """Some bytes of a pickle; nothing but the published files is ever opened."""
    import pickle

    return [pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]})]


def read_cifar(path: Path) -> None:
    from torchvision.datasets import CIFAR10

    folder = path.parent / CIFAR10.base_folder
    folder.mkdir(exist_ok=True)
    for name in ("data_batch_1", "test_batch", "batches.meta"):
        (folder / name).write_bytes(path.read_bytes())
    os.environ["WCL_DATA"] = str(path.parent)
    CIFAR10.url = "http://127.0.0.1:9/nobody-listens-there.tar.gz"
    cifar("cifar10", "train")


def weight_files() -> list[bytes]:
    """Weights as others publish them: safetensors, and both formats of `torch.save`."""
    weights = small_encoder().backbone.state_dict()
    files = [save(weights)]
    for zipped in (True, False):
        content = io.BytesIO()
        torch.save({"state_dict": weights}, content, _use_new_zipfile_serialization=zipped)
        files.append(content.getvalue())
    return files


def read_pretrained(path: Path) -> None:
    encoder = small_encoder()
    model = dataclasses.replace(encoder.description.model, weights=str(path))
    load_weights(encoder.backbone, model, 1, input_format(model).image_size)


def read_settings(path: Path) -> None:
    settings("", {"out": "x"}, method_settings, files=[path])


def read_annotation(path: Path) -> None:
    root = path.parent / "voc"
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "ImageSets" / "Main" / "trainval.txt").write_text("case\n")
    (root / "Annotations" / "case.xml").write_bytes(path.read_bytes())
    VocSource(root, "trainval")


_YAML = [b"[" * 2000, b"{" * 2000, b"&a ", b"*a", b"!!python/object/apply:os.mkdir [trap]", b"? "]
_YAML += [b"optim:\n", b"  rate: .nan\n", b"epochs: 1e999\n", b"- ", b"\n", b"'", b"\x00", b"\xff"]
_XML = [
    b'<!DOCTYPE a [<!ENTITY b "c">]>',
    b"&b;",
    b"<object>",
    b"</",
    b"<a>" * 500,
    b"]]>",
    b"\x00",
]

READERS = {
    "jpeg": Reader(pictures("JPEG", ("RGB", "L", "CMYK")), read_image),
    "png": Reader(pictures("PNG", ("RGB", "P", "1", "RGBA", "I;16")), read_image),
    "png with checksums": Reader(
        pictures("PNG", ("RGB", "P", "LA")), read_image, seal=with_png_checksums
    ),
    "webp": Reader(pictures("WEBP", ("RGB", "RGBA")), read_image),
    "gif": Reader(pictures("GIF", ("P", "L")), read_image),
    "bmp": Reader(pictures("BMP", ("RGB", "P", "1")), read_image),
    "tiff": Reader(pictures("TIFF", ("RGB", "P", "I;16", "F", "CMYK")), read_image),
    "ppm": Reader(pictures("PPM"), read_image),
    "jpeg 2000": Reader(pictures("JPEG2000"), read_image),
    "parquet": Reader(parquet_files, read_parquet),
    "encoder": Reader(encoder_files, wcl.load, "case.safetensors"),
    "pretrained weights": Reader(weight_files, read_pretrained),
    "checkpoint": Reader(checkpoint_files, read_checkpoint, refuses_all=True),
    "checkpoint with digest": Reader(checkpoint_files, read_checkpoint, seal=with_digest),
    "cifar": Reader(cifar_batches, read_cifar, refuses_all=True),
    "settings": Reader(
        # Only a recipe has a base.
        lambda: [
            text
            for name in recipe_names()
            if b"base:" not in (text := recipe_file(name).read_bytes())
        ],
        read_settings,
        words=_YAML,
    ),
    "voc annotation": Reader(
        lambda: [annotation(("cat", "dog?")).encode()], read_annotation, words=_XML
    ),
}
if find_spec("imagecodecs"):
    READERS["tiff of five channels"] = Reader(five_channels, read_five_channels)
if find_spec("pillow_heif"):
    register_heif()
    READERS["heif"] = Reader(pictures("HEIF"), read_image)
if features.check("avif"):
    READERS["avif"] = Reader(pictures("AVIF"), read_image)
