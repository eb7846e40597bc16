"""Every odd file that a folder of images may hold: used rightly, or skipped with a reason."""

import io
import json
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from images import encoded, photo_folder, picture
from runs import metrics, photo_run
from wcl.apps.embed import embed
from wcl.apps.inspect_data import examine
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, EmbedConfig
from wcl.data import Source, open_source
from wcl.data.decode import UnreadableImage, center_crop, open_image
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def plain(
    color: Any, mode: str = "RGB", size: tuple[int, int] = (20, 10), kind: str = "PNG", **how: Any
) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, color).save(file, kind, **how)
    return file.getvalue()


def with_transparency() -> bytes:
    image = Image.new("P", (20, 10), 1)
    image.putpalette([*RED, *GREEN, *BLUE])
    return encoded_with(image, "PNG", transparency=1)


def encoded_with(image: Image.Image, kind: str, **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def frames(kind: str) -> bytes:
    first, *others = (Image.new("RGB", (20, 10), color) for color in (RED, GREEN, BLUE))
    return encoded_with(first, kind, save_all=True, append_images=others)


def turned() -> bytes:
    """Held upside down: its upper half, red as it is stored, belongs below."""
    image = Image.new("RGB", (16, 16), GREEN)
    image.paste(RED, (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = 3
    return encoded_with(image, "PNG", exif=exif)


def of_16_bits(level: int) -> bytes:
    return encoded(Image.fromarray(np.full((10, 20), level, np.uint16)))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + body))
    return struct.pack(">I", len(body)) + kind + body + checksum


def bomb() -> bytes:
    """40,000 × 40,000 pixels, it says, in a few hundred bytes."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(100_000)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + png_chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """A comment of 200 MB, compressed, behind the header."""
    whole = encoded(picture(0))
    comment = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(200 * 2**20), 9))
    return whole[:33] + comment + whole[33:]


def postscript() -> bytes:
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"


USED: dict[str, tuple[Callable[[], bytes], tuple[int, int, int]]] = {
    "plain.png": (lambda: plain(RED), RED),
    "a png called.jpg": (lambda: plain(GREEN), GREEN),
    "a jpeg called.png": (lambda: plain((200, 100, 50), kind="JPEG"), (200, 100, 50)),
    "upper case.PNG": (lambda: plain(BLUE), BLUE),
    "cmyk.jpg": (lambda: plain((0, 255, 255, 0), "CMYK", kind="JPEG"), RED),
    "cmyk.tif": (lambda: plain((255, 0, 255, 0), "CMYK", kind="TIFF"), GREEN),
    "16 bits.png": (lambda: of_16_bits(257 * 99), (99, 99, 99)),
    "16 bits, dark.png": (lambda: of_16_bits(200), (0, 0, 0)),
    "1 bit.png": (lambda: plain(1, "1"), (255, 255, 255)),
    "gray.jpg": (lambda: plain(70, "L", kind="JPEG"), (70, 70, 70)),
    "gray with alpha.png": (lambda: plain((70, 10), "LA"), (70, 70, 70)),
    "half transparent.png": (lambda: plain((9, 8, 7, 128), "RGBA"), (9, 8, 7)),
    "palette with transparency.png": (with_transparency, GREEN),
    "animated.gif": (lambda: frames("GIF"), RED),
    "animated.webp": (lambda: frames("WEBP"), RED),
    "animated.png": (lambda: frames("PNG"), RED),
    "many pages.tiff": (lambda: frames("TIFF"), RED),
    "1x1.png": (lambda: plain(BLUE, size=(1, 1)), BLUE),
    "30000x1.png": (lambda: plain(BLUE, size=(30_000, 1)), BLUE),
    "1x30000.png": (lambda: plain(RED, size=(1, 30_000)), RED),
    "line\nend.png": (lambda: plain(RED), RED),
    "'quotes\" & $(touch sprung); `id`.png": (lambda: plain(RED), RED),
    "<script>alert(1)<!-- .png": (lambda: plain(RED), RED),
    "[red]markup \x1b[31m.png": (lambda: plain(RED), RED),
    "-rf.png": (lambda: plain(GREEN), GREEN),
    os.fsdecode(b"not text \xff\xfe.png"): (lambda: plain(RED), RED),
}

SKIPPED: dict[str, tuple[Callable[[], bytes], str]] = {
    "no bytes.jpg": (bytes, "not an image"),
    "text.jpg": (lambda: b"a letter to somebody", "not an image"),
    "cut short.jpg": (lambda: encoded(picture(0, 200, 300), "JPEG")[:1500], "truncated"),
    "cut short.png": (lambda: encoded(picture(0))[:900], "truncated|broken|Truncated"),
    "cut short.webp": (lambda: encoded(picture(0), "WEBP")[:90], "."),
    "header alone.jpg": (lambda: encoded(picture(0), "JPEG")[:20], "."),
    "bomb.png": (bomb, "pixels.*decompression bomb"),
    "bomb in a comment.png": (text_bomb, "."),
    "postscript.jpg": (postscript, "not an image"),
    "program.png": (lambda: b"\x7fELF" + bytes(100), "not an image"),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """All of them in one folder, and links that lead nowhere, which are left out."""
    root = tmp_path_factory.mktemp("odd") / "images"
    root.mkdir()
    for name, (content, _) in {**USED, **SKIPPED}.items():
        (root / name).write_bytes(content())
    (root / "loop.png").symlink_to("loop.png")
    (root / "loops").symlink_to(".")
    (root / "gone.png").symlink_to("nowhere.png")
    os.mkfifo(root / "pipe.png")
    (root / "folder.png").mkdir()
    return open_source(str(root))


def name_of(source: Source, index: int) -> str:
    paths: Any = source
    return str(paths.paths[index])


def test_the_folder_has_the_odd_files_and_nothing_else(odd: Source) -> None:
    assert {name_of(odd, i) for i in range(len(odd))} == {*USED, *SKIPPED}


def test_each_is_used_with_its_colors_or_skipped_with_its_reason(odd: Source) -> None:
    for index in range(len(odd)):
        name = name_of(odd, index)
        if name in USED:
            found = center_crop(odd.image(index), 32).float().mean(dim=(1, 2))
            expected = torch.tensor(USED[name][1], dtype=torch.float32)
            assert (found - expected).abs().max() <= 2, name
        else:
            with pytest.raises(UnreadableImage) as error:
                center_crop(odd.image(index), 32)
            assert re.search(SKIPPED[name][1], str(error.value)), (name, str(error.value))


def test_an_image_held_upside_down_is_turned() -> None:
    pixels = center_crop(open_image(turned()), 16)
    assert pixels[0].float().mean(dim=1).tolist() == [0.0] * 8 + [255.0] * 8


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_loader_uses_and_skips_the_same(odd: Source, num_workers: int) -> None:
    loader = Loader(odd, len(odd), 0, torch.device("cpu"), num_workers=num_workers)
    (batch,) = loader.epoch(0, [ViewSpec(ViewMaker(AugmentConfig(), 32), 2)])
    assert {name_of(odd, i) for i in batch.index.tolist()} == set(USED)
    assert {name_of(odd, i) for i in batch.skipped} == set(SKIPPED)
    assert batch.views[0].isfinite().all()
    assert all(len(reason) > len(odd.where(i)) + 2 for i, reason in batch.skipped.items())


def test_looking_at_the_data_finds_the_same(odd: Source) -> None:
    found = examine(odd)
    assert sum(found.sizes.values()) == len(USED)
    assert {Path(where).name for where in found.unreadable} == set(SKIPPED)


def test_commands_name_what_they_skip_on_one_line_each(odd: Source, tmp_path: Path) -> None:
    root = tmp_path / "images"
    root.mkdir()
    (root / "line\nend \x1b[31m <script>.png").write_bytes(b"")
    (root / "fine.png").write_bytes(plain(RED))
    command = [sys.executable, "-m", "wcl", "data", str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if "unreadable: " in line]
    assert line.endswith(r"line\nend \x1b[31m <script>.png: not an image")


def test_pretraining_and_embedding_go_on_without_the_skipped(odd: Source, tmp_path: Path) -> None:
    run = photo_run(Path(odd.name), tmp_path / "run", epochs=1, batch_size=len(odd))
    assert metrics(run)[-1]["skipped"] == len(SKIPPED)
    out = tmp_path / "vectors.parquet"
    embed(run, EmbedConfig(data=odd.name, out=str(out)))
    assert len(pq.read_table(out)) == len(USED)


def test_files_that_vanish_or_change_after_the_listing_are_skipped_or_used(tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", ("one",), 8)
    source = open_source(str(root))
    files = sorted((root / "one").iterdir())
    files[0].unlink()
    files[1].write_bytes(b"")
    files[2].unlink()
    files[2].mkdir()
    files[3].unlink()
    os.mkfifo(files[3])
    files[4].unlink()
    files[4].symlink_to(files[4])
    files[5].write_bytes(plain(RED))
    loader = Loader(source, 8, 0, torch.device("cpu"), num_workers=1)
    (batch,) = loader.epoch(0, [ViewSpec(ViewMaker(AugmentConfig(), 32), 2)])
    assert sorted(batch.skipped) == [0, 1, 2, 3, 4]
    assert sorted(batch.index.tolist()) == [5, 6, 7]


def test_a_file_that_is_cut_after_it_was_opened_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(picture(0, 300, 300)))
    image = open_image(path)
    os.truncate(path, 300)
    with pytest.raises(UnreadableImage):
        center_crop(image, 32)


def test_an_image_of_many_gray_levels_takes_little_memory() -> None:
    """6,000 × 6,000 pixels of 16 bits are 72 MB; as numbers of 64 bits they were gigabytes."""
    content = encoded(Image.fromarray(np.full((6000, 6000), 257 * 10, np.uint16)))
    script = (
        "import resource, sys, json\n"
        "from wcl.data.decode import center_crop, open_image\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "pixels = center_crop(open_image(sys.stdin.buffer.read()), 32)\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(json.dumps([int(pixels.float().mean()), (after - before) / 1024]))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=content, check=True, capture_output=True)
    level, megabytes = json.loads(done.stdout)
    assert level == 10
    assert megabytes < 450
