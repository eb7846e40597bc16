"""Features of all images of a source, without augmentation, cached in the run folder."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from wcl.data.decode import UnreadableImage, decoded
from wcl.data.plain_images import BATCH, plain_images
from wcl.data.source import Source
from wcl.evaluation.run_files import write_if_possible
from wcl.models.encoder import Encoder, weights_sha256
from wcl.models.weights_file import read_weights
from wcl.system.errors import InputError, RunError
from wcl.system.progress import log, track
from wcl.system.run_folder import RunFolder

_PREPROCESSING = "center crop 1"  # must change whenever `center_crop` returns other pixels


def features(encoder: Encoder, source: Source, num_workers: int = -1) -> tuple[Tensor, Tensor]:
    """Return features and labels of the readable images: (n, D) and (n,) on the host."""
    assert source.labels is not None
    values, rows = features_and_rows(encoder, source, num_workers)
    return values, source.labels[rows]


def features_and_rows(
    encoder: Encoder, source: Source, num_workers: int = -1
) -> tuple[Tensor, Tensor]:
    """Return features and numbers of the readable images: (n, D) and (n,) on the host."""

    def compute() -> tuple[Tensor, Tensor]:
        parts = []
        batches = pixel_batches(encoder, source, num_workers)
        text = f"computing features of {len(source):,} images"
        for pixels, index in track(batches, text, -(-len(source) // BATCH)):
            parts.append((encoder.embed(pixels), index))
        if not parts:
            raise InputError(f"{source.name}: {none_can_be_read(len(source))}")
        values, rows = (torch.cat(column) for column in zip(*parts, strict=True))
        return values, rows

    every = torch.arange(len(source))
    values, rows = cached_features(encoder, source, _PREPROCESSING, every, compute)
    if unreadable := len(source) - len(rows):
        log(f"{source.name}: {unreadable} of {len(source)} images cannot be read; left out")
    return values, rows


def cached_features(
    encoder: Encoder,
    source: Source,
    preprocessing: str,
    wanted: Tensor,
    compute: Callable[[], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Return features and image numbers from the folder of the encoder's run, or compute them.

    Args:
        encoder: the encoder; if it does not belong to a run, nothing is cached.
        source: the images.
        preprocessing: identifies how the images are prepared.
        wanted: (n,) numbers of the images.
        compute: returns (m, D) features and (m,) numbers of the readable images, on the host.

    Raises:
        RunError: features are not finite.
    """
    if encoder.home is not None:
        name = f"{features_key(encoder, source, preprocessing)}.safetensors"
        path = RunFolder(encoder.home).features / name
        with suppress(OSError, SafetensorError):  # not cached yet, or damaged
            cached = read_weights(path)
            missing = wanted[~torch.isin(wanted, cached["rows"])]
            if not _any_readable(source, missing):
                return cached["features"], cached["rows"]
    values, rows = compute()
    if not bool(values.isfinite().all()):
        raise RunError("the encoder's features are not finite; its training must have diverged")
    if encoder.home is not None:
        content = save({"features": values, "rows": rows})
        write_if_possible(path, content, "features are not cached for the next evaluation")
    return values, rows


def _any_readable(source: Source, rows: Tensor) -> bool:
    """Return whether any of these images, which could not be read before, now can be."""
    for row in rows.tolist():
        with suppress(UnreadableImage):
            decoded(source.image(row), source.channels, source.levels)
            return True
    return False


def none_can_be_read(images: int) -> str:
    """Return the message for a source, or a part of one, without a readable image."""
    return f"none of the {images} images asked for can be read; `wcl data` shows why"


def features_key(encoder: Encoder, source: Source, preprocessing: str = _PREPROCESSING) -> str:
    """Return a digest of the weights, the images and how they are prepared."""
    described = encoder.description
    digest = hashlib.sha256(preprocessing.encode())
    prepared = described.image_size, described.channels, described.mean, described.std
    digest.update(repr(prepared).encode())
    if described.levels:  # without, the key is that of earlier versions
        digest.update(repr(described.levels).encode())
    digest.update(source.fingerprint(times=True).encode())
    digest.update(weights_sha256(encoder.backbone.state_dict()).encode())
    return digest.hexdigest()[:32]


def pixel_batches(
    encoder: Encoder, source: Source, num_workers: int = -1
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all images as the encoder needs them: ((n, C, size, size) bytes, (n,) numbers)."""
    needed = encoder.description
    return plain_images(source, needed.image_size, needed.channels, needed.levels, num_workers)
