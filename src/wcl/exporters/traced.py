"""What TorchScript and ONNX have in common: a network that normalizes, what it says of itself."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from wcl.models.encoder import Description, Embedder, Encoder, described_by
from wcl.system.errors import InputError, RunError

DESCRIPTION = "wcl-export-1"
"""What the files call the description that they carry."""

CHECKSUM_ROOM = b"0" * 64
"""What a file ends with before it is sealed."""

_BATCHES = (1, 2, 5)
_TOLERANCE = 1e-3


class FromPixels(nn.Module):
    """The backbone with the normalization before it, which nobody can then forget."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        described = encoder.description
        self.mean = nn.Buffer(torch.tensor(described.mean)[:, None, None])
        self.std = nn.Buffer(torch.tensor(described.std)[:, None, None])
        self.backbone = encoder.backbone

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, size, size) between 0 and 1 → (N, features)."""
        features: Tensor = self.backbone((images - self.mean) / self.std)
        return features


class ExportedEncoder(Embedder):
    """A file that computes features by itself, opened."""

    def __init__(self, file: Path, description: str, compute: Callable[[Tensor], Tensor]) -> None:
        """`compute` is the file's: (N, C, size, size) between 0 and 1 → (N, features)."""
        self.description = described_by(description, file)
        self.feature_dim = self.description.feature_dim
        self._compute = compute
        try:
            found = compute(example(self.description)).shape[1:]
        except Exception as error:  # of torch or onnxruntime, for images of a wrong shape
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{file}: takes no images of its own description ({reason})"
            ) from error
        if found != (self.feature_dim,):
            given = "×".join(map(str, found))
            raise InputError(f"{file}: gives {given} features, not {self.feature_dim} as it states")

    def _check(self, pixels: Tensor) -> None:
        super()._check(pixels)
        size = self.description.image_size
        if pixels.shape[2:] != (size, size):
            raise InputError(
                f"images are (N, {self.description.channels}, {size}, {size}); these are "
                f"{tuple(pixels.shape)}, and an exported encoder takes no other size; "
                "it resizes files and PIL images"
            )

    def _features(self, pixels: Tensor) -> Tensor:
        return self._compute(pixels.float() / 255)


def description_of(encoder: Encoder) -> str:
    """What an exported file says of itself, as JSON."""
    return json.dumps(encoder.described(heads=()))


def example(described: Description) -> Tensor:
    """Images to try a network with: none of anybody's, for a file may keep them."""
    return torch.zeros(2, described.channels, described.image_size, described.image_size)


def seal(content: bytes) -> bytes:
    """The content of a file with its checksum: the SHA-256 of all before is its end."""
    rest = content.removesuffix(CHECKSUM_ROOM)
    return rest + _checksum(rest)


def must_be_sealed(content: bytes, file: Path) -> None:
    """Raise InputError if anything in a file is not as `seal` left it."""
    room = len(CHECKSUM_ROOM)
    if content[-room:] != _checksum(content[:-room]):
        raise InputError(f"{file}: damaged; its content is not what was written")


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def check(encoder: Encoder, exported: Embedder) -> None:
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
        if not difference <= _TOLERANCE:  # nor if it is not a number
            raise RunError(
                f"{described.model.backbone} cannot be exported so: in a batch of {count}, "
                f"features differ by {difference:.1e} from the encoder's; nothing was written"
            )
        largest = max(largest, difference)
    print(f"checked with batches of {_BATCHES}: largest difference of a feature {largest:.1e}")
