"""Decoding photos and cutting views: PIL against simplejpeg, and against resizing with torch.

Large photos are those of phones: they are decoded at half their size, because no crop needs more.
"""

import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from benchmarks.timing import medians
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import open_source, resize
from wcl.data.photo_views import PhotoViews, Task
from wcl.paper.synthetic import write_photos

_PHOTOS = 48
_LARGE_PHOTOS, _LARGE = 6, (2000, 1500)
_VIEWS = [(ViewMaker(AugmentConfig(), 224), 2)]
_SMALL_CROPS = ViewMaker(AugmentConfig(scale=(0.05, 0.14)), 64)
_FOLDER_VIEWS = [(ViewMaker(AugmentConfig(), 128), 2), (_SMALL_CROPS, 4)]  # of the recipe `folder`

Pixels = npt.NDArray[np.uint8]
Decoder = Callable[[bytes, int], Pixels]
"""From a JPEG and how many times smaller it is wanted."""


def measure(rounds: int) -> dict[str, float | None]:
    """Return photos per second on one core, and their ratios."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            photos, large = Path(name) / "photos", Path(name) / "large"
            photos.mkdir()
            large.mkdir()
            write_photos(photos, _PHOTOS)
            _write_large(photos, large)
            return {
                **_decoding("decode", photos, 1, rounds),
                **_decoding("decode_large", large, 2, rounds),
                **_cutting("views", photos, _VIEWS, rounds),
                **_cutting("folder_views", photos, _FOLDER_VIEWS, rounds),
                **_cutting("large_views", large, _VIEWS, rounds),
            }
    finally:
        torch.set_num_threads(threads)


def _write_large(photos: Path, folder: Path) -> None:
    """Enlarge photos and add noise, so that the files are as long as those of a phone."""
    generator = np.random.default_rng(0)
    for path in sorted(photos.iterdir())[:_LARGE_PHOTOS]:
        with Image.open(path) as photo:
            pixels = np.asarray(photo.resize(_LARGE, Image.Resampling.BICUBIC))
        noisy = pixels + generator.normal(0, 3, pixels.shape)
        image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        image.save(folder / path.name, quality=90, subsampling="4:2:0")


def _decoding(name: str, folder: Path, reduction: int, rounds: int) -> dict[str, float | None]:
    """Compare decoders of files in memory, from bytes to an array."""
    files = [path.read_bytes() for path in sorted(folder.iterdir())]
    decoders: dict[str, Decoder] = {"pil": by_pil}
    if (by_simplejpeg := simplejpeg_decoder()) is not None:
        decoders["simplejpeg"] = by_simplejpeg

    def all_by(decode: Decoder) -> None:
        for file in files:
            decode(file, reduction)

    seconds = medians({key: partial(all_by, decode) for key, decode in decoders.items()}, rounds)
    # None without simplejpeg: `make bench` installs it
    ratio = seconds["pil"] / seconds["simplejpeg"] if "simplejpeg" in seconds else None
    return {
        f"{name}_simplejpeg_over_pil": ratio,
        f"{name}_pil_images_per_second": len(files) / seconds["pil"],
    }


def by_pil(file: bytes, reduction: int) -> Pixels:
    """Decode a JPEG at 1, 1/2, 1/4 or 1/8 of its size with PIL."""
    image = Image.open(io.BytesIO(file))
    image.draft(None, (image.width // reduction, image.height // reduction))
    return np.asarray(image)


def simplejpeg_decoder() -> Decoder | None:
    """Return the same by simplejpeg, or None if it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None

    def decode(file: bytes, reduction: int) -> Pixels:
        height, width, *_ = simplejpeg.decode_jpeg_header(file)
        pixels: Pixels = simplejpeg.decode_jpeg(
            file,
            "RGB",
            min_factor=reduction,
            min_height=height // reduction,
            min_width=width // reduction,
        )
        return pixels

    return decode


def _cutting(
    name: str, folder: Path, makers: list[tuple[ViewMaker, int]], rounds: int
) -> dict[str, float | None]:
    """Compare what a decoding process does for a task, where crops are resized by PIL or torch."""
    source = open_source(str(folder))
    index = np.arange(len(source))
    own = [np.repeat(index[:, None], count, axis=1) for _, count in makers]
    task = Task(0, [maker for maker, _ in makers], index, own)
    views = PhotoViews(source, 0, 0)

    def resized_by(resizer: str) -> None:
        resize.RESIZER = resizer
        views[task]

    chosen = resize.RESIZER
    try:
        seconds = medians({key: partial(resized_by, key) for key in ("PIL", "torch")}, rounds)
    finally:
        resize.RESIZER = chosen
    return {
        f"{name}_torch_over_pil": seconds["PIL"] / seconds["torch"],
        f"{name}_images_per_second": len(index) / seconds["torch"],
    }
