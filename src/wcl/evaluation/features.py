"""Features of all images of a source, without augmentation, computed once for each encoder."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.utils.data import Dataset

from wcl.data.decode import UnreadableImage, center_crop, decoded
from wcl.data.source import ArraySource, Source
from wcl.data.workers import Workers, worker_count
from wcl.models.encoder import Encoder, weights_sha256
from wcl.models.weights_file import read_all, write_weights
from wcl.system.errors import InputError, RunError, WorkerLost
from wcl.system.files import clear_unfinished
from wcl.system.progress import say, track
from wcl.system.run_folder import RunFolder

BATCH = 256
"""Images that pass through the encoder together."""
_SEAL = "sha256"  # of a file's name, features and rows, among its metadata
_PREPROCESSING = "center crop 1"  # changes whenever `center_crop` gives other pixels


def features(encoder: Encoder, source: Source, num_workers: int = -1) -> tuple[Tensor, Tensor]:
    """Features and labels of the images that can be read.

    Those of an encoder that was loaded from a run are kept in the run's folder, under a name that
    depends on the weights, the images and how they are prepared.

    Returns:
        (n, features) and (n,) on the host.
    """
    assert source.labels is not None
    values, rows = features_and_rows(encoder, source, num_workers)
    return values, source.labels[rows]


def features_and_rows(
    encoder: Encoder, source: Source, num_workers: int = -1
) -> tuple[Tensor, Tensor]:
    """Features of the images that can be read, and their numbers: (n, features) and (n,)."""
    everything = torch.arange(len(source))
    values, rows = kept(
        encoder, source, _PREPROCESSING, everything, lambda: _compute(encoder, source, num_workers)
    )
    if skipped := len(source) - len(rows):
        say(f"{source.name}: {skipped} of {len(source)} images cannot be read; left out")
    return values, rows


def kept(
    encoder: Encoder,
    source: Source,
    how: str,
    wanted: Tensor,
    compute: Callable[[], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Features of some images and their numbers, computed unless the encoder's run has them.

    Args:
        encoder: whose features they are.
        source: the images.
        how: names the preparation of the images.
        wanted: the numbers of the images that the features are of, if all can be read.
        compute: gives (n, features) and (n,) on the host.

    Raises:
        RunError: features are not finite.
    """
    place = _place(encoder, source, how)
    found = None if place is None else _read(place)
    if found is None or _another_can_be_read(source, wanted, found[1]):
        found = compute()
        if not bool(found[0].isfinite().all()):
            raise RunError("the encoder's features are not finite; its training must have diverged")
        if place is not None:
            _write(place, *found)
    return found


def _another_can_be_read(source: Source, wanted: Tensor, rows: Tensor) -> bool:
    """Whether an image that could not be read then can be now: the disk may have been away."""
    for row in wanted[~torch.isin(wanted, rows)].tolist():
        with suppress(UnreadableImage):
            decoded(source.image(row), source.channels)
            return True
    return False


def _compute(encoder: Encoder, source: Source, num_workers: int) -> tuple[Tensor, Tensor]:
    parts, kept = [], []
    total = -(-len(source) // BATCH)
    doing = f"computing features of {len(source):,} images"
    for pixels, index in track(pixel_batches(encoder, source, num_workers), doing, total):
        parts.append(encoder.embed(pixels))
        kept.append(index)
    rows = torch.cat(kept) if kept else torch.empty(0, dtype=torch.long)
    if len(rows) == 0:
        raise InputError(f"{source.name}: {none_can_be_read(len(source))}")
    return torch.cat(parts), rows


def none_can_be_read(images: int) -> str:
    """Why there is nothing to compute with: of the whole source, or of a part held out of it."""
    return f"none of the {images} images asked for can be read; `wcl data` says why"


def _place(encoder: Encoder, source: Source, how: str) -> Path | None:
    """The file for these features, or None for an encoder that is not of a run."""
    if encoder.home is None:
        return None
    name = f"{features_key(encoder, source, how)}.safetensors"
    return RunFolder(encoder.home).features / name


def features_key(encoder: Encoder, source: Source, how: str = _PREPROCESSING) -> str:
    """A name for these features, of the weights, the images and how they are prepared."""
    described = encoder.description
    digest = hashlib.sha256(how.encode())
    prepared = described.image_size, described.channels, described.mean, described.std
    digest.update(repr(prepared).encode())
    digest.update(source.fingerprint(times=True).encode())
    digest.update(weights_sha256(encoder.backbone.state_dict()).encode())
    return digest.hexdigest()[:32]


def _read(path: Path) -> tuple[Tensor, Tensor] | None:
    """Features and rows, unless they are not there or not as they were written."""
    try:
        found, metadata = read_all(path)
        whole = metadata[_SEAL] == _seal(path, found)
        return (found["features"], found["rows"]) if whole else None
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _seal(path: Path, found: dict[str, Tensor]) -> str:
    """A digest of the name too: features under another's name are of other images."""
    return hashlib.sha256(f"{path.stem} {weights_sha256(found)}".encode()).hexdigest()


def _write(path: Path, values: Tensor, rows: Tensor) -> None:
    """Keep them if that is possible; an evaluation does not fail for it."""
    found = {"features": values, "rows": rows}
    try:
        path.parent.mkdir(exist_ok=True)
        clear_unfinished(path.parent)
        write_weights(path, found, {_SEAL: _seal(path, found)})
    except OSError as error:
        say(f"features are not kept for the next time ({error.strerror})")


def pixel_batches(
    encoder: Encoder, source: Source, num_workers: int = -1
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images as the encoder wants them: ((n, C, size, size) bytes, (n,) numbers).

    A batch of BATCH consecutive images lacks those that cannot be read, and is left out if it has
    no other.
    """
    size = encoder.description.image_size
    if (
        isinstance(source, ArraySource)
        and source.pixels.shape[1:] == (encoder.description.channels, size, size)
        and not source.unreadable
    ):
        numbers = torch.arange(len(source))
        yield from zip(source.pixels.split(BATCH), numbers.split(BATCH), strict=True)
        return
    in_memory = isinstance(source, ArraySource)
    decoders: Workers[range, tuple[Tensor, Tensor]] = Workers(
        source.name,
        _CenterCrops(source, size, encoder.description.channels),
        0 if in_memory else worker_count(num_workers),
    )
    rows = range(len(source))
    try:
        for pixels, index in decoders.done([rows[i : i + BATCH] for i in rows[::BATCH]]):
            if len(index):
                yield pixels, index
    except WorkerLost as error:
        raise RunError(f"{error}; the same command may be given again") from error
    finally:
        decoders.stop()


class _CenterCrops(Dataset[tuple[Tensor, Tensor]]):
    """Of some images, the pixels and the numbers of those that can be read."""

    def __init__(self, source: Source, size: int, channels: int) -> None:
        self.source = source
        self.size = size
        self.channels = channels

    def __getitem__(self, rows: range) -> tuple[Tensor, Tensor]:
        crops, kept = [], []
        for index in rows:
            with suppress(UnreadableImage):
                crops.append(center_crop(self.source.image(index), self.size, self.channels))
                kept.append(index)
        return torch.stack(crops) if crops else torch.empty(0), torch.tensor(kept)
