import numpy as np

from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data.views import ViewSpec, view_draws


def test_views_are_numbered_through_all_specifications() -> None:
    index = np.array([7, 3], dtype=np.int64)
    two, one = view_draws(5, 4, index, [2, 1])
    assert (two.seed, two.epoch, one.seed, one.epoch) == (5, 4, 5, 4)
    assert list(zip(two.index.tolist(), two.view.tolist(), strict=True)) == [
        (7, 0),
        (3, 0),
        (7, 1),
        (3, 1),
    ]
    assert list(zip(one.index.tolist(), one.view.tolist(), strict=True)) == [(7, 2), (3, 2)]


def test_views_are_cut_from_their_own_image_or_from_the_given_ones() -> None:
    maker = ViewMaker(AugmentConfig(), 16)
    index = np.array([2, 0], dtype=np.int64)
    table = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int64)
    assert ViewSpec(maker, 2).crop_sources_of(index).tolist() == [[2, 2], [0, 0]]
    assert ViewSpec(maker, 2, table).crop_sources_of(index).tolist() == [[5, 6], [1, 2]]
