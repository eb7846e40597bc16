"""Images that are each of one color."""

import torch
from torch import Tensor

from wcl.data import ArraySource


def colors(images: int = 12, channels: int = 3) -> Tensor:
    """Of each image, all different: (N, C)."""
    step = torch.arange(images)[:, None] * torch.tensor([20, 7, 3])
    return ((40 + step) % 256)[:, :channels]


def plain_images(labels: Tensor | None = None, channels: int = 3) -> ArraySource:
    pixels = colors(channels=channels).to(torch.uint8)[:, :, None, None].expand(-1, -1, 20, 20)
    return ArraySource("made", pixels.contiguous(), labels)
