"""Crop, flip, blur and warp whole batches, each image with its own parameters.

A resized crop and a flip are linear and separable: X ↦ A X Bᵀ with a small matrix per image for
the rows and one for the columns. So one matrix product does both on any device, and equals
cropping followed by resizing.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.ops.randomness import Floats, Integers

_CROP_ATTEMPTS = 10  # as torchvision's RandomResizedCrop
CROP_DRAWS = 2 * _CROP_ATTEMPTS + 2


def crop_boxes(
    u: Floats,
    heights: Integers,
    widths: Integers,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Integers:
    """Draw random crops with the distribution of torchvision's RandomResizedCrop.

    Args:
        u: (N, CROP_DRAWS) uniform numbers.
        heights, widths: (N,) sizes of the images.
        scale: range of the crop's share of the image's area.
        ratio: range of width / height, drawn uniformly in its logarithm.

    Returns:
        (N, 4) boxes: top, left, height, width.
    """
    tries = slice(0, _CROP_ATTEMPTS), slice(_CROP_ATTEMPTS, 2 * _CROP_ATTEMPTS)
    target = (heights * widths)[:, None] * (scale[0] + (scale[1] - scale[0]) * u[:, tries[0]])
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    aspect = np.exp(log_low + (log_high - log_low) * u[:, tries[1]])
    width = np.rint(np.sqrt(target * aspect)).astype(np.int64)
    height = np.rint(np.sqrt(target / aspect)).astype(np.int64)
    fits = (width > 0) & (width <= widths[:, None]) & (height > 0) & (height <= heights[:, None])

    first = fits.argmax(axis=1)
    row = np.arange(len(u))
    # If no attempt fits: the largest centered crop whose ratio is allowed.
    whole = widths / heights
    widest = np.maximum(np.minimum(widths, np.rint(heights * ratio[1])), 1).astype(np.int64)
    tallest = np.maximum(np.minimum(heights, np.rint(widths / ratio[0])), 1).astype(np.int64)
    found = fits.any(axis=1)
    width = np.where(found, width[row, first], np.where(whole > ratio[1], widest, widths))
    height = np.where(found, height[row, first], np.where(whole < ratio[0], tallest, heights))

    top = np.where(found, u[:, -2] * (heights - height + 1), (heights - height) // 2)
    left = np.where(found, u[:, -1] * (widths - width + 1), (widths - width) // 2)
    return np.stack([top.astype(np.int64), left.astype(np.int64), height, width], axis=1)


def resized_crop(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    """Crop a box of every image and resize it, bilinear with antialiasing; flip some.

    Args:
        images: (N, C, H, W), floating point.
        boxes: (N, 4) top, left, height, width.
        size: height and width of the result.
        flip: (N,) whether to mirror each image left to right.

    Returns:
        (N, C, size, size).
    """
    top, left, height, width = boxes.to(images.dtype).unbind(dim=1)
    rows = _resize_matrix(top, height, images.shape[2], size)
    columns = _resize_matrix(left, width, images.shape[3], size, flip)
    return _rows_and_columns(images, rows, columns)


def gaussian_blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Blur with a Gaussian of its own for each image; borders are reflected as in torchvision.

    Args:
        images: (N, C, H, W), floating point.
        sigma: (N,) standard deviations in pixels.
        kernel: odd number of taps.

    Returns:
        (N, C, H, W).
    """
    offsets = torch.arange(kernel, device=images.device, dtype=images.dtype) - (kernel - 1) / 2
    taps = torch.exp(-0.5 * (offsets / sigma[:, None]) ** 2)
    taps = taps / taps.sum(dim=1, keepdim=True)
    count, channels, height, width = images.shape
    reach = kernel // 2
    planes = F.pad(images, (reach,) * 4, mode="reflect").flatten(0, 1)[None]
    # One group per channel of each image, because each image has its own taps.
    weight = taps.repeat_interleave(channels, dim=0)[:, None]
    planes = F.conv2d(planes, weight[:, :, None, :], groups=count * channels)
    planes = F.conv2d(planes, weight[:, :, :, None], groups=count * channels)
    return planes.view(count, channels, height, width)


def affine(images: Tensor, angle: Tensor, shear: Tensor, zoom: Tensor, shift: Tensor) -> Tensor:
    """Rotate, shear, zoom and shift about the center; pixels from outside are zero.

    The same map as torchvision's `affine` with bilinear interpolation.

    Args:
        images: (N, C, H, W), floating point.
        angle: (N,) degrees, clockwise.
        shear: (N,) degrees, along x.
        zoom: (N,) factors.
        shift: (N, 2) pixels, right and down.

    Returns:
        (N, C, H, W).
    """
    turn, lean = torch.deg2rad(angle), torch.deg2rad(shear)
    # Output → input coordinates, the inverse of shift · rotation · shear · zoom.
    cos, sin, tan = torch.cos(turn), torch.sin(turn), torch.tan(lean)
    a, b, c, d = ((cos - sin * tan) / zoom, (cos * tan + sin) / zoom, -sin / zoom, cos / zoom)
    right, down = shift.unbind(dim=1)
    # affine_grid measures in halves of the image size.
    across, along = images.shape[3] / 2, images.shape[2] / 2
    first_row = [a, b * along / across, -(a * right + b * down) / across]
    second_row = [c * across / along, d, -(c * right + d * down) / along]
    theta = torch.stack([*first_row, *second_row], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", align_corners=False)


def _resize_matrix(
    start: Tensor, length: Tensor, full: int, size: int, flip: Tensor | None = None
) -> Tensor:
    """Return weights that resize pixels [start, start + length) of `full`: (N, size, full).

    The filter is PIL's and torchvision's, bilinear with antialiasing: a triangle as wide as the
    reduction, truncated at the border of the crop and normalized.
    """
    device, dtype = start.device, start.dtype
    scale = (length / size)[:, None]
    support = scale.clamp(min=1)[:, :, None]
    offset = torch.arange(size, device=device, dtype=dtype) + 0.5
    if flip is not None:
        offset = torch.where(flip[:, None], size - offset, offset)
    center = start[:, None] + offset * scale
    pixel = torch.arange(full, device=device, dtype=dtype)
    weight = (1 - (pixel + 0.5 - center[:, :, None]).abs() / support).clamp(min=0)
    inside = (pixel >= start[:, None]) & (pixel < (start + length)[:, None])
    weight *= inside[:, None].to(dtype)
    return weight.div_(weight.sum(dim=2, keepdim=True))


def _rows_and_columns(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute A X Bᵀ for every channel: (N, C, H, W), (N, h, H), (N, w, W) → (N, C, h, w)."""
    count, channels, height, width = images.shape
    across = torch.bmm(images.reshape(count, channels * height, width), columns.transpose(1, 2))
    return torch.matmul(rows[:, None], across.view(count, channels, height, -1))
