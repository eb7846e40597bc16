"""What TorchScript and ONNX files share: built-in normalization, a description and a checksum."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from wcl.data.levels import described_levels
from wcl.models.description import Description, parse_description
from wcl.models.embedder import Embedder
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError, RunError

DESCRIPTION = "wcl-export-1"
"""Name of the description inside a file."""

CHECKSUM_PLACEHOLDER = b"0" * 64
"""Placeholder for the checksum at the end of a file."""

_BATCHES = (1, 2, 5)
_TOLERANCE = 1e-3


class FromPixels(nn.Module):
    """The backbone behind the normalization of its input."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        described = encoder.description
        self.mean = nn.Buffer(torch.tensor(described.mean)[:, None, None])
        self.std = nn.Buffer(torch.tensor(described.std)[:, None, None])
        self.backbone = encoder.backbone

    def forward(self, images: Tensor) -> Tensor:
        """Compute features: (N, C, size, size) between 0 and 1 → (N, D)."""
        features: Tensor = self.backbone((images - self.mean) / self.std)
        return features


class ExportedEncoder(Embedder):
    """An opened TorchScript or ONNX file, which computes features without wcl's networks."""

    def __init__(self, file: Path, description: str, compute: Callable[[Tensor], Tensor]) -> None:
        """Describe the file; `compute` runs it: (N, C, size, size) between 0 and 1 → (N, D)."""
        self.description = parse_description(description, file)
        self.feature_dim = self.description.feature_dim
        self._compute = compute

    def _check(self, pixels: Tensor) -> None:
        super()._check(pixels)
        size = self.description.image_size
        if pixels.shape[2:] != (size, size):
            raise InputError(
                f"images must be (N, {self.description.channels}, {size}, {size}), not "
                f"{tuple(pixels.shape)}: an exported encoder resizes only files and PIL images"
            )

    def _features(self, pixels: Tensor) -> Tensor:
        return self._compute(self._between_0_and_1(pixels, torch.float32))


@contextmanager
def tracing(encoder: Encoder, to: str) -> Iterator[tuple[FromPixels, Tensor]]:
    """Yield a network to trace, and images to trace it with.

    The images are blank, since a file may keep a copy of them.

    Raises:
        RunError: the format does not support something that the network does.
    """
    described = encoder.description
    images = torch.zeros(2, described.channels, described.image_size, described.image_size)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # about what tracing might miss: see `check_features`
            yield FromPixels(encoder).eval(), images
    except RuntimeError as error:
        name, reason = described.model.backbone, str(error).splitlines()[0]
        raise RunError(f"--to {to}: {name} cannot be exported ({reason})") from error


def description_of(encoder: Encoder) -> str:
    """Return the description that an exported file carries, as JSON."""
    return json.dumps(encoder.described(heads=()))


def example_images(described: Description, zeros: str) -> str:
    """Return Python that makes images as an exported file takes them.

    Args:
        described: the encoder.
        zeros: an expression for float32 zeros of the shape SHAPE.
    """
    shape = f"(1, {described.channels}, {described.image_size}, {described.image_size})"
    levels = f" (of 16 bits: {described_levels(described.levels)})" if described.levels else ""
    return (
        f"images = {zeros.replace('SHAPE', shape)}  # any number of images, with values between 0 "
        f"and 1{levels}; the file normalizes them"
    )


def seal(content: bytes) -> bytes:
    """Replace the placeholder at the end of a file by the SHA-256 of everything before it."""
    rest = content.removesuffix(CHECKSUM_PLACEHOLDER)
    return rest + _checksum(rest)


def read_sealed(file: Path) -> bytes:
    """Return the content of an exported file.

    Raises:
        InputError: wcl did not write the file, or it has changed since.
    """
    content, length = file.read_bytes(), len(CHECKSUM_PLACEHOLDER)
    if DESCRIPTION.encode() not in content:
        raise InputError(f"{file}: incomplete, or a network but not an encoder that wcl exported")
    if content[-length:] != _checksum(content[:-length]):
        raise InputError(f"{file}: damaged: its checksum does not match its content")
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def check_features(encoder: Encoder, exported: Embedder) -> None:
    """Compare the features of random images, for batches of several sizes.

    Raises:
        RunError: they differ by more than rounding.
    """
    described, generator = encoder.description, torch.Generator().manual_seed(0)
    shape = described.channels, described.image_size, described.image_size
    largest = 0.0
    for count in _BATCHES:
        pixels = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator)
        difference = (encoder.embed(pixels) - exported.embed(pixels)).abs().max().item()
        if not difference <= _TOLERANCE:  # also true for NaN
            raise RunError(
                f"{described.model.backbone} cannot be exported to this format: "
                f"in a batch of {count}, features differ from the encoder's by "
                f"{difference:.1e}; nothing was written"
            )
        largest = max(largest, difference)
    print(f"checked with batches of {_BATCHES}: largest difference {largest:.1e}")
