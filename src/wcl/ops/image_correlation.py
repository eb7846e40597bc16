"""How alike two images are pixel by pixel, even if one is a crop or a mirror image of the other."""

import torch
from torch import Tensor

_GRID = 16  # side of the grid that images are compared on
_MAX_CROP = 3  # pixels of a reduced image that may be missing at each side


@torch.no_grad()
def aligned_correlations(images: Tensor, pairs: Tensor) -> Tensor:
    """Return the correlation of the edges of each pair of images, at the best alignment.

    Each image is compared with all crops of the other that lack up to 3 pixels at each side (9% of
    32), upright and mirrored. See `edges` for what is compared.

    Args:
        images: (N, C, size, size) reduced images.
        pairs: (P, 2) indices of images.

    Returns:
        (P,) correlations, at most 1.
    """
    size, margins = images.shape[-1], range(_MAX_CROP + 1)
    spans = torch.stack([_averages(size, a, size - b) for a in margins for b in margins])
    whole = spans[0]
    found = torch.full((len(pairs),), -1.0)
    ends = torch.cat([pairs, pairs.flip(1)])
    order = ends[:, 0].argsort()
    cropped, counts = ends[order, 0].unique_consecutive(return_counts=True)
    for image, rows in zip(cropped.tolist(), order.split(counts.tolist()), strict=True):
        others = whole @ images[ends[rows, 1]].float() @ whole.T
        crops = torch.einsum("vik,ckl,wjl->vwcij", spans, images[image].float(), spans)
        alike = edges(crops).flatten(0, 1) @ edges(torch.cat([others, others.flip(-1)])).T
        best = alike.amax(dim=0).view(2, -1).amax(dim=0)
        found.scatter_reduce_(0, rows % len(pairs), best, "amax")
    return found.clamp(max=1)


def edges(images: Tensor) -> Tensor:
    """Return unit vectors of the differences of adjacent pixels, whose product is a correlation.

    It depends neither on brightness nor on contrast, and smooth backgrounds, which make different
    photos alike, hardly count. Images of one color resemble each other and no others.

    Args:
        images: (…, C, H, W).

    Returns:
        (…, D) float32.
    """
    pixels = images.float()
    down, right = pixels.diff(dim=-2).flatten(-3), pixels.diff(dim=-1).flatten(-3)
    contrast = torch.cat([down, right], dim=-1)
    length = contrast.norm(dim=-1, keepdim=True)
    blank = length < 1e-3
    # One more component, which is 0 for all other images.
    return torch.cat([contrast / length.clamp(min=1e-3) * ~blank, blank.float()], dim=-1)


def _averages(size: int, start: int, stop: int) -> Tensor:
    """Return (grid, size) weights: each cell averages its part of the pixels start … stop."""
    limits = torch.linspace(start, stop, _GRID + 1)[:, None]
    pixel = torch.arange(size)
    covered = torch.minimum(limits[1:], pixel + 1) - torch.maximum(limits[:-1], pixel)
    return covered.clamp(min=0) * (_GRID / (stop - start))
