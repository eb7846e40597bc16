"""Make augmented views of images: the operations, their order and their random numbers.

Small images of one size are cropped here, in the batch. Photos arrive cropped by the decoding
workers, which call `boxes`. Everything after the crop is the same code for both.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wcl.augment.color import CONTRAST, color_jitter, solarize, to_grayscale
from wcl.augment.geometry import CROP_DRAWS, affine, crop_boxes, gaussian_blur, resized_crop
from wcl.config import AugmentConfig
from wcl.ops.randomness import Draws, Integers, between
from wcl.system.errors import InputError

# Pixels per chunk. On a CPU 512 images of 32×32: with fewer the calls take longer than the work,
# and many more do not fit into the cache. Other devices work best with few large calls.
_CPU_CHUNK, _CHUNK = 2**19, 2**26


Flags = npt.NDArray[np.bool_]
Numbers = tuple[float, ...]


def normalization(config: AugmentConfig, channels: int) -> tuple[Numbers, Numbers]:
    """Return mean and standard deviation of each channel.

    More than three channels have a mean of 1/2 and a deviation of 1/4, unless they are set: there
    are no customary values for them as there are for color.

    Raises:
        InputError: the settings have too few numbers.
    """
    if channels > 3 >= max(len(config.mean), len(config.std)):
        return (0.5,) * channels, (0.25,) * channels
    for name in ("mean", "std"):
        if len(getattr(config, name)) < channels:
            raise InputError(
                f"--augment.{name}: give one number for each of the {channels} channels"
            )
    return config.mean[:channels], config.std[:channels]


class ViewMaker:
    """Makes views of one size from one set of augmentations."""

    def __init__(self, config: AugmentConfig, size: int, channels: int = 3) -> None:
        self.config = config
        self.size = size
        self.channels = channels
        self.mean, self.std = normalization(config, channels)

    def boxes(self, heights: Integers, widths: Integers, draws: Draws) -> Integers:
        """Return where to cut each view out of its image: (N, 4) top, left, height, width."""
        uniform = draws.uniform("crop", CROP_DRAWS)
        return crop_boxes(uniform, heights, widths, self.config.scale, self.config.ratio)

    def least_side(self, height: int, width: int) -> float:
        """Return about the shortest side that a box in an image of this size can have."""
        low, high = self.config.ratio
        narrowest = math.sqrt(self.config.scale[0] * height * width / max(high, 1 / low))
        return min(narrowest, height, width)

    def from_images(self, images: Tensor, draws: Draws) -> Tensor:
        """Make views of images of one size: (N, C, H, W) uint8 → (N, C, size, size) float."""
        views = self._empty(draws, images)
        pixels = max(images.shape[2] * images.shape[3], self.size**2)
        for rows in _chunks(len(draws), pixels, images.device):
            part = draws[rows]
            sizes = np.tile(np.array(images.shape[2:], dtype=np.int64), (len(part), 1))
            boxes = torch.from_numpy(self.boxes(sizes[:, 0], sizes[:, 1], part))
            crops = resized_crop(
                images[rows].float().div_(255),
                boxes.to(images.device, non_blocking=True),
                self.size,
                _to(images.device, self._flips(part)),
            )
            self._after_crop(crops, part, views[rows])
        return views

    def from_crops(self, crops: Tensor, draws: Draws) -> Tensor:
        """Make views of crops that were cut at `boxes`: (N, C, size, size) uint8 → float."""
        views = self._empty(draws, crops)
        for rows in _chunks(len(draws), self.size**2, crops.device):
            part = draws[rows]
            chunk = crops[rows].float().div_(255)
            flipped = _chosen(self._flips(part), crops.device)
            chunk[flipped] = chunk[flipped].flip(3)
            self._after_crop(chunk, part, views[rows])
        return views

    def to_pixels(self, views: Tensor) -> Tensor:
        """Undo the normalization of views: (…, C, size, size) float → uint8."""
        mean, std = self._normalization(views.device)
        return ((views * std + mean).clamp(0, 1) * 255).round().to(torch.uint8)

    def _normalization(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return _by_channel(self.mean, device), _by_channel(self.std, device)

    def _empty(self, draws: Draws, images: Tensor) -> Tensor:
        if images.shape[:2] != (len(draws), self.channels):
            raise ValueError(
                f"{len(draws)} images of {self.channels} channels are needed, "
                f"not {tuple(images.shape)}"
            )
        shape = len(draws), self.channels, self.size, self.size
        return torch.empty(shape, device=images.device)

    def _flips(self, draws: Draws) -> Flags:
        return draws.uniform("flip", 1)[:, 0] < self.config.flip

    def _after_crop(self, views: Tensor, draws: Draws, out: Tensor) -> None:
        views = self._jittered(views, draws)
        views = self._grayed(views, draws)
        views = self._blurred(views, draws)
        views = self._solarized(views, draws)
        views = self._moved(views, draws)
        if self.config.noise > 0:
            noise = draws.normal("noise", views[0].numel(), views.device)
            views = (views + self.config.noise * noise.view_as(views)).clamp_(0, 1)
        mean, std = self._normalization(views.device)
        torch.sub(views, mean, out=out)
        out.div_(std)

    def _jittered(self, views: Tensor, draws: Draws) -> Tensor:
        config = self.config
        strengths = [config.brightness, config.contrast, config.saturation, config.hue]
        if self.channels != 3:
            strengths = [*strengths[: CONTRAST + 1], 0.0, 0.0]  # only RGB has colors to change
        if config.jitter == 0 or not any(strengths):
            return views
        uniform = draws.uniform("jitter", 9)
        factors = np.stack(
            [between(uniform[:, i], max(0.0, 1 - s), 1 + s) for i, s in enumerate(strengths[:3])]
            + [between(uniform[:, 3], -strengths[3], strengths[3])],
            axis=1,
        )
        factors[uniform[:, 8] >= config.jitter] = [1, 1, 1, 0]
        order = np.argsort(uniform[:, 4:8], axis=1)
        return color_jitter(views, factors, order)

    def _grayed(self, views: Tensor, draws: Draws) -> Tensor:
        if self.config.grayscale == 0 or self.channels != 3:
            return views
        chosen = _chosen(draws.uniform("grey", 1)[:, 0] < self.config.grayscale, views.device)
        if len(chosen):
            views[chosen] = to_grayscale(views[chosen]).expand(-1, 3, -1, -1)
        return views

    def _blurred(self, views: Tensor, draws: Draws) -> Tensor:
        if self.config.blur == 0 or self.size == 1:  # a single pixel has nothing to blur
            return views
        uniform = draws.uniform("blur", 2)
        picked = uniform[:, 0] < self.config.blur
        chosen = _chosen(picked, views.device)
        if len(chosen):
            sigma = between(uniform[picked, 1], *self.config.blur_sigma).astype(np.float32)
            # A tenth of the image as in SimCLR, made odd: 23 taps at 224 pixels.
            kernel = max(3, int(0.1 * self.size) // 2 * 2 + 1)
            views[chosen] = gaussian_blur(views[chosen], _to(views.device, sigma), kernel)
        return views

    def _solarized(self, views: Tensor, draws: Draws) -> Tensor:
        if self.config.solarize == 0:
            return views
        chosen = _chosen(draws.uniform("solarize", 1)[:, 0] < self.config.solarize, views.device)
        views[chosen] = solarize(views[chosen])
        return views

    def _moved(self, views: Tensor, draws: Draws) -> Tensor:
        config = self.config
        if not (config.rotate or config.shear or config.shift or config.zoom != (1.0, 1.0)):
            return views
        uniform = draws.uniform("affine", 5)
        reach = config.shift * self.size
        parameters = [
            between(uniform[:, 0], -config.rotate, config.rotate),
            between(uniform[:, 1], -config.shear, config.shear),
            between(uniform[:, 2], *config.zoom),
            between(uniform[:, 3:], -reach, reach),
        ]
        return affine(views, *(_to(views.device, p.astype(np.float32)) for p in parameters))


@cache
def _by_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a cached (C, 1, 1) tensor on the device."""
    return torch.tensor(values, device=device)[:, None, None]


def _chunks(count: int, pixels: int, device: torch.device) -> list[slice]:
    step = max(1, (_CPU_CHUNK if device.type == "cpu" else _CHUNK) // pixels)
    return [slice(start, start + step) for start in range(0, count, step)]


def _chosen(picked: Flags, device: torch.device) -> Tensor:
    """Return the rows, computed on the host so that nothing waits for the device."""
    return _to(device, np.flatnonzero(picked))


def _to(device: torch.device, array: npt.NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)
