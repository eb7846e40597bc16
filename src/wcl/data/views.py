"""View specifications, and the numbers by which an image's views draw their randomness."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from wcl.augment import ViewMaker
from wcl.ops.randomness import Draws, Integers


@dataclass(frozen=True)
class ViewSpec:
    """Some views of every image that are made in one way."""

    maker: ViewMaker
    count: int
    crop_sources: Integers | None = None
    """(images of the source, count): the image that each view is cut from; None for itself."""

    def crop_sources_of(self, index: Integers) -> Integers:
        """Return the images that the views of these images are cut from: (n,) → (n, count)."""
        own = np.repeat(index[:, None], self.count, axis=1)
        return own if self.crop_sources is None else self.crop_sources[index]


def view_draws(seed: int, epoch: int, index: Integers, counts: Iterable[int]) -> Iterator[Draws]:
    """Yield the random numbers of the views of each specification.

    An image's views are numbered through all specifications. This is the only place that numbers
    them.

    Args:
        seed: of the run.
        epoch: from 0.
        index: (n,) numbers of the images in the source.
        counts: views per image of each specification.

    Yields:
        Draws of count·n views: the first of all images, then the second of all images, …
    """
    first = 0
    for count in counts:
        view = np.repeat(np.arange(first, first + count, dtype=np.int64), len(index))
        yield Draws(seed, epoch, np.tile(index, count), view)
        first += count
