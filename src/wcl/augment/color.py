"""Change the colors of whole batches, each image with its own factors and order.

The semantics are torchvision's `ColorJitter` and `RandomGrayscale` on RGB in [0, 1].
"""

import numpy as np
import torch
from torch import Tensor

from wcl.ops.randomness import Floats, Integers

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_BLENDS = 3  # all but the last


def to_grayscale(images: Tensor) -> Tensor:
    """Return the luma (ITU-R 601) of RGB images: (N, 3, H, W) → (N, 1, H, W).

    Images with other channels stay as they are: each channel is gray.
    """
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(dim=1)
    return (red * 0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(1)


def solarize(images: Tensor) -> Tensor:
    """Invert the pixels of at least one half: (N, C, H, W) in [0, 1]."""
    return torch.minimum(images, 1 - images)


def color_jitter(images: Tensor, factors: Floats, order: Integers) -> Tensor:
    """Change brightness, contrast, saturation and hue, in each image's own order.

    Brightness, contrast and saturation are blends f·x + (1 − f)·y, where y is black, the mean gray
    or the gray image, so one pass serves images at any of the three. Every image has three blends,
    p of them before its change of hue. With the images sorted by p, those with a blend left are
    always a slice: nothing is computed in vain or gathered in between, and hue, the most expensive
    change, is a single pass over all images.

    Args:
        images: (N, C, H, W) in [0, 1]. Without red, green and blue, saturation and hue change
            nothing, and each channel has its own mean gray.
        factors: (N, 4) of brightness, contrast, saturation (1 changes nothing) and hue (in
            turns of the color wheel, 0 changes nothing).
        order: (N, 4) a permutation of 0…3 per image.

    Returns:
        (N, C, H, W).
    """
    before_hue = (order == HUE).argmax(axis=1)
    blends = order[order != HUE].reshape(-1, _BLENDS)
    weights = np.take_along_axis(factors, blends, axis=1)

    active = np.flatnonzero((factors != [1, 1, 1, 0]).any(axis=1))
    rows = active[np.argsort(-before_hue[active], kind="stable")]
    at = torch.from_numpy(rows).to(images.device, non_blocking=True)
    work = images[at]
    for position in range(_BLENDS):
        waiting = slice(0, int((before_hue[rows] > position).sum()))
        chosen = rows[waiting]
        _blend(work[waiting], weights[chosen, position], blends[chosen, position])
    if images.shape[1] == 3:
        turn = torch.from_numpy(factors[rows, HUE].astype(np.float32))
        work = rotate_hue(work, turn.to(images.device, non_blocking=True))
    for position in range(_BLENDS):
        remaining = slice(int((before_hue[rows] > position).sum()), None)
        chosen = rows[remaining]
        _blend(work[remaining], weights[chosen, position], blends[chosen, position])
    return images.index_copy(0, at, work)


def rotate_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue of RGB images, keeping saturation and value of HSV.

    Hue in sixths of a turn is 0 + d_b − d_g where red is largest, 2 + d_r − d_b where green is, and
    4 + d_g − d_r where blue is; d is the distance of a channel from the largest, divided by the
    spread. In reverse, a channel is the smallest plus the spread times a trapezoid of the hue. The
    cases are distinguished by arithmetic: on a CPU `where` takes twenty times as long as `lerp`.

    Args:
        images: (N, 3, H, W) in [0, 1].
        turn: (N,) full turns.

    Returns:
        (N, 3, H, W).
    """
    red, green, blue = images.unbind(dim=1)
    largest = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    spread = largest - least
    per_spread = spread.clamp(min=1e-12).reciprocal_()  # for gray the distances are 0
    d_r, d_g, d_b = ((largest - channel).mul_(per_spread) for channel in (red, green, blue))
    # 1 where the distance is 0; the smallest other distance of float32 colors is above 1e-8.
    red_largest, green_largest = (d.mul(-1e9).add_(1).clamp_(0, 1) for d in (d_r, d_g))
    hue = torch.lerp((d_g - d_r).add_(4), (d_r - d_b).add_(2), green_largest)
    hue = torch.lerp(hue, d_b.sub_(d_g), red_largest).add_(6 * turn[:, None, None])
    hue.add_((hue / 6).floor_(), alpha=-6)

    rotated = torch.empty_like(images)
    trapezoids = (
        (hue - 3).abs_().sub_(1),
        (hue - 2).abs_().neg_().add_(2),
        (hue - 4).abs_().neg_().add_(2),
    )
    for channel, height in enumerate(trapezoids):
        torch.addcmul(least, spread, height.clamp_(0, 1), out=rotated[:, channel])
    return rotated


def _blend(images: Tensor, weight: Floats, operation: Integers) -> None:
    """Set x to clamp(w·x + (1 − w)·y, 0, 1) in place; y depends on each image's operation."""
    if len(images) == 0:
        return
    parameters = np.stack([weight, operation == CONTRAST, operation == SATURATION], axis=1)
    shape = (len(images), 3, 1, 1, 1)
    on_device = torch.from_numpy(parameters.astype(np.float32).reshape(shape)).to(
        images.device, non_blocking=True
    )
    keep, to_mean, to_gray = on_device.unbind(dim=1)
    gray = to_grayscale(images)
    mean = gray.mean(dim=(2, 3), keepdim=True)
    other = torch.addcmul(mean * to_mean, gray, to_gray)
    torch.lerp(other, images, keep, out=images).clamp_(0, 1)
