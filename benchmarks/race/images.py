"""The images of a race: some of a labeled source in color, with all of its test images."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wcl.data import Source, limited, open_splits
from wcl.data.decode import shown, whole_pixels
from wcl.system.errors import InputError
from wcl.system.files import atomic_write


def write_images(data: str, count: int, folder: Path) -> None:
    """Write parquet files with a training and a test split.

    Args:
        data: the source, as for `--data`.
        count: number of training images, chosen at random once; 0 for all.
        folder: where to write; nothing is done if it is complete.

    Raises:
        InputError: the images have no labels.
    """
    test_file = folder / "test.parquet"
    if test_file.exists():  # the last to be written
        return
    train, test = open_splits(data)
    folder.mkdir(parents=True, exist_ok=True)
    _write(limited(train, count, seed=0), folder / "train.parquet")
    _write(test, test_file)


def _write(source: Source, path: Path) -> None:
    if source.labels is None:
        raise InputError(f"--data: {source.name} has no labels; k-NN accuracy needs some")
    images = []
    for number in range(len(source)):
        buffer = io.BytesIO()
        shown(whole_pixels(source.image(number))).save(buffer, "PNG")
        images.append({"bytes": buffer.getvalue(), "path": f"{number}.png"})
    with atomic_write(path) as unfinished:
        pq.write_table(pa.table({"image": images, "label": source.labels.tolist()}), unfinished)
