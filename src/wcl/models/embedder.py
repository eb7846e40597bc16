"""The interface that encoders and exported files share: images in, features out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from wcl.data.decode import UnreadableImage, center_crop, open_image
from wcl.models.description import Description
from wcl.system.errors import InputError


class Embedder(ABC):
    """Turns images into features: an encoder, or a file that one was exported to."""

    description: Description
    feature_dim: int
    """Dimension of the features."""

    @abstractmethod
    def _features(self, pixels: Tensor) -> Tensor:
        """Compute (N, C, image_size, image_size) uint8 → (N, feature_dim) on the CPU."""

    def __repr__(self) -> str:
        about = self.description
        network = f"{about.model.backbone}, {self.feature_dim} features, size {about.image_size}"
        return f"{type(self).__name__}({network}, {about.method}, epoch {about.epoch})"

    def embed(
        self,
        images: Tensor | str | Path | Image.Image | Sequence[str | Path | Image.Image],
        batch_size: int = 256,
    ) -> Tensor:
        """Compute the features of images.

        Args:
            images: a file, a PIL image, a list of these, or a uint8 tensor
                (N, C, image_size, image_size). Files and PIL images are resized and cropped at
                the center.
            batch_size: images per forward pass.

        Returns:
            (N, feature_dim) on the CPU.

        Raises:
            TypeError, ValueError: `images` are of another type or shape.
            InputError: a file cannot be read.
        """
        if isinstance(images, str | Path | Image.Image):
            images = [images]
        if isinstance(images, dict) or not hasattr(images, "__getitem__"):
            raise self._wrong_type(type(images).__name__)
        parts = []
        for start in range(0, len(images), batch_size):
            chunk = images[start : start + batch_size]
            pixels = chunk if isinstance(chunk, Tensor) else self._pixels(chunk)
            self._check(pixels)
            parts.append(self._features(pixels))
        return torch.cat(parts) if parts else torch.empty(0, self.feature_dim)

    def _check(self, pixels: Tensor) -> None:
        if pixels.dtype != torch.uint8:
            raise ValueError(f"images must be uint8 with values 0 to 255, not {pixels.dtype}")
        if pixels.ndim != 4 or pixels.shape[1] != self.description.channels:
            wanted = f"(N, {self.description.channels}, height, width)"
            raise ValueError(f"images must be of shape {wanted}, not {tuple(pixels.shape)}")

    def _wrong_type(self, given: str) -> TypeError:
        return TypeError(
            "embed takes a file or PIL image, a list of these, or one uint8 tensor "
            f"(N, {self.description.channels}, height, width); got {given}"
        )

    def _pixels(self, images: Sequence[str | Path | Image.Image]) -> Tensor:
        size, channels = self.description.image_size, self.description.channels
        pixels = []
        for image in images:
            if not isinstance(image, str | Path | Image.Image):
                raise self._wrong_type(f"{type(images).__name__} with {type(image).__name__} in it")
            try:
                opened = image if isinstance(image, Image.Image) else open_image(Path(image))
                pixels.append(center_crop(opened, size, channels))
            except UnreadableImage as error:
                folder = isinstance(image, str | Path) and Path(image).is_dir()
                why = "a folder; `wcl embed` takes all images of one" if folder else error
                raise InputError(f"{image}: {why}") from error
        return torch.stack(pixels)
