"""Whole-batch augmentation with per-image randomness: tensors in, tensors out."""

from wcl.augment.color import color_jitter, rotate_hue, solarize, to_grayscale
from wcl.augment.geometry import affine, crop_boxes, gaussian_blur, resized_crop
from wcl.augment.views import ViewMaker, normalization

__all__ = [
    "ViewMaker",
    "affine",
    "color_jitter",
    "crop_boxes",
    "gaussian_blur",
    "normalization",
    "resized_crop",
    "rotate_hue",
    "solarize",
    "to_grayscale",
]
