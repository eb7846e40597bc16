"""The view specifications of a run: full views of each image, support views and small crops."""

import dataclasses

from wcl.augment import ViewMaker
from wcl.config import AugmentConfig, PretrainConfig
from wcl.data.views import ViewSpec
from wcl.methods import find_method


def view_specs(
    config: PretrainConfig, channels: int, mild: bool = False, count: int = 0
) -> list[ViewSpec]:
    """Return the view specifications of a step.

    The full views share a specification unless the method augments the first and the second
    differently. Support views have one of their own, between the full views and the small crops.

    Args:
        config: settings of the run.
        channels: channels of the images.
        mild: whether to use the mild augmentation of the first epochs.
        count: number of full views for pictures of them, without support views; 0 for the views of
            a step.
    """
    crops, augment = config.crops, config.augment
    if mild:
        augment = AugmentConfig(mean=augment.mean, std=augment.std)
    method = find_method(config.method)
    first, second = method.augmentations(config.loss, augment)
    support = 0 if count else method.support_views(config.loss)
    count = count or 2
    full = [(first, count)]
    if first != second:
        full = [(first, count - count // 2), (second, count // 2)]
    full.append((method.support_augmentation(config.loss, augment), support))
    size = config.image_size
    specs = [ViewSpec(ViewMaker(each, size, channels), number) for each, number in full if number]
    if crops.count:
        small = dataclasses.replace(augment, scale=crops.scale)
        specs.append(ViewSpec(ViewMaker(small, config.crop_size, channels), crops.count))
    return specs
