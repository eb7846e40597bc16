"""The view specifications of a run: two full views of each image, and small crops."""

import dataclasses

from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, PretrainConfig
from wcl.data.views import ViewSpec
from wcl.methods import find_method


def view_specs(
    config: PretrainConfig, channels: int, mild: bool = False, count: int = 2
) -> list[ViewSpec]:
    """Return the view specifications of a step.

    The full views share a specification unless the method augments the first and the second
    differently.

    Args:
        config: settings of the run.
        channels: channels of the images.
        mild: whether to use the mild augmentation of the first epochs.
        count: number of full views; other than 2 for pictures of them.
    """
    crops, augment = config.crops, config.augment
    if mild:
        augment = AugmentConfig(mean=augment.mean, std=augment.std)
    first, second = find_method(config.method).augmentations(config.loss, augment)
    full = [(first, count)]
    if first != second:
        full = [(first, count - count // 2), (second, count // 2)]
    size = config.image_size
    specs = [ViewSpec(ViewMaker(each, size, channels), number) for each, number in full if number]
    if crops.count:
        small = dataclasses.replace(augment, scale=crops.scale)
        specs.append(ViewSpec(ViewMaker(small, config.crop_size, channels), crops.count))
    return specs
