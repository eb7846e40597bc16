"""The interface that encoders and exported files share: images in, features out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
        """Compute (N, C, image_size, image_size) → (N, feature_dim) on the CPU.

        The pixels are uint8 from 0 to 255, or floats from 0 to 1.
        """

    def __repr__(self) -> str:
        about = self.description
        network = f"{about.model.backbone}, {self.feature_dim} features, size {about.image_size}"
        return f"{type(self).__name__}({network}, {about.method}, epoch {about.epoch})"

    def embed(
        self,
        images: Tensor
        | NDArray[Any]
        | str
        | Path
        | Image.Image
        | Sequence[str | Path | Image.Image],
        batch_size: int = 256,
    ) -> Tensor:
        """Compute the features of images.

        Args:
            images: a file, a PIL image, or a list of these, which are resized and cropped at the
                center. Or a tensor or NumPy array of pixels, (N, C, image_size, image_size), or
                (C, image_size, image_size) for one image: uint8 from 0 to 255, or floats from 0
                to 1, which the encoder normalizes.
            batch_size: images per forward pass.

        Returns:
            (N, feature_dim) on the CPU.

        Raises:
            TypeError, ValueError: `images` are of another type, shape or range.
            InputError: a file cannot be read.
        """
        if isinstance(images, str | Path | Image.Image):
            images = [images]
        if isinstance(images, np.ndarray):
            images = self._tensor(images)
        if isinstance(images, Tensor) and images.ndim == 3:
            images = images[None]
        if isinstance(images, dict) or not hasattr(images, "__getitem__"):
            raise self._wrong_type(type(images).__name__)
        parts = []
        for start in range(0, len(images), batch_size):
            chunk = images[start : start + batch_size]
            pixels = chunk if isinstance(chunk, Tensor) else self._pixels(chunk)
            self._check(pixels)
            try:
                parts.append(self._features(pixels))
            except RuntimeError as error:
                height, width = pixels.shape[2:]
                size = self.description.image_size
                if (height, width) == (size, size):
                    raise
                raise ValueError(
                    f"images of {height}×{width} pixels do not fit the network ({error}); use "
                    f"{size}×{size}"
                ) from error
        return torch.cat(parts) if parts else torch.empty(0, self.feature_dim)

    def _check(self, pixels: Tensor) -> None:
        """Raise ValueError if these are not pixels that the encoder takes."""
        if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
            raise ValueError(
                f"images must be uint8 from 0 to 255 or floats from 0 to 1, not {pixels.dtype}"
            )
        if pixels.ndim != 4 or pixels.shape[1] != self.description.channels:
            wanted = f"(N, {self.description.channels}, height, width)"
            raise ValueError(f"images must be of shape {wanted}, not {tuple(pixels.shape)}")
        if pixels.is_floating_point() and pixels.numel():
            low, high = (float(value) for value in pixels.aminmax())
            if not (low >= 0 and high <= 1):  # nor NaN
                raise ValueError(
                    f"images of floats must be between 0 and 1, not {low:.4g} to {high:.4g}; "
                    "divide by the largest possible value, and do not normalize"
                )

    @staticmethod
    def _between_0_and_1(pixels: Tensor, dtype: torch.dtype) -> Tensor:
        return pixels.to(dtype) / 255 if pixels.dtype == torch.uint8 else pixels.to(dtype)

    def _wrong_type(self, given: str) -> TypeError:
        return TypeError(
            "embed takes a file or PIL image, a list of these, or one tensor or NumPy array "
            f"(N, {self.description.channels}, height, width); got {given}"
        )

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        known = array.dtype == np.uint8 or (array.dtype.kind == "f" and array.itemsize <= 8)
        if not known:  # by torch
            raise ValueError(
                f"images must be uint8 from 0 to 255 or floats from 0 to 1, not {array.dtype}"
            )
        # Torch takes neither negative strides nor another byte order.
        return torch.from_numpy(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))

    def _pixels(self, images: Sequence[str | Path | Image.Image]) -> Tensor:
        size, channels = self.description.image_size, self.description.channels
        pixels = []
        for image in images:
            if not isinstance(image, str | Path | Image.Image):
                raise self._wrong_type(f"{type(images).__name__} with {type(image).__name__} in it")
            try:
                opened = image if isinstance(image, Image.Image) else open_image(Path(image))
                pixels.append(center_crop(opened, size, channels, self.description.levels))
            except UnreadableImage as error:
                folder = isinstance(image, str | Path) and Path(image).is_dir()
                why = "a folder; `wcl embed` takes all images of one" if folder else error
                raise InputError(f"{image}: {why}") from error
        return torch.stack(pixels)
