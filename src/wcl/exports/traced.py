"""What TorchScript and ONNX have in common: a network that normalises, and a description."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from wcl.encoder import Embedder, Encoder, described_by
from wcl.errors import InputError, RunError

DESCRIPTION = "wcl-export-1"
"""What the files call the description that they carry."""

_BATCHES = (1, 2, 5)
_TOLERANCE = 1e-3


class FromPixels(nn.Module):
    """The backbone with the normalisation before it, which nobody can then forget."""

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
        try:
            values = json.loads(description)
            self.description = described_by(values)
            self.features = int(values["features"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{file}: damaged, or of another version of wcl") from error
        self._compute = compute

    def _check(self, pixels: Tensor) -> None:
        super()._check(pixels)
        size = self.description.size
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
    return json.dumps({"features": encoder.features, **encoder.described(heads=())})


def example(encoder: Encoder) -> Tensor:
    """Images to trace a network with: none of anybody's, for a file may keep them."""
    described = encoder.description
    return torch.zeros(2, described.channels, described.size, described.size)


def check(encoder: Encoder, exported: Embedder) -> None:
    """Compare the features of random images, for batches of several sizes.

    Raises:
        RunError: they differ by more than rounding.
    """
    described, generator = encoder.description, torch.Generator().manual_seed(0)
    shape = described.channels, described.size, described.size
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
