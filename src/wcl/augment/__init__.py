"""Whole-batch augmentation with per-image randomness: tensors in, tensors out."""

from wcl.augment.color import colour_jitter, greyscale, rotate_hue
from wcl.augment.geometry import affine, crop_boxes, gaussian_blur, resized_crop
from wcl.augment.views import ViewMaker

__all__ = [
    "ViewMaker",
    "affine",
    "colour_jitter",
    "crop_boxes",
    "gaussian_blur",
    "greyscale",
    "resized_crop",
    "rotate_hue",
]
