"""Several views through one network, and their selection by view and by image."""

import numpy as np
import pytest
import torch
from torch import Tensor

from wcl.models.multiview import concat_images, embed_views, select_images, select_views


class Pooling:
    """A network without parameters, and the sizes of the batches that it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        assert x.is_contiguous(memory_format=torch.channels_last)
        self.calls.append((len(x), x.shape[2]))
        return {"h": x.mean(dim=(2, 3)), "g": x.amax(dim=(2, 3))}


@pytest.mark.parametrize("images", [3, 0])
@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([32], [(2, 32)]),
        ([32, 16], [(2, 32), (3, 16)]),
        ([32, 32], [(5, 32)]),
        ([16, 32, 16], [(6, 16), (3, 32)]),
    ],
)
def test_views_of_one_size_pass_together_and_keep_their_number(
    sizes: list[int], calls: list[tuple[int, int]], images: int
) -> None:
    torch.manual_seed(0)
    counts = [2, 3, 4]
    views = [torch.randn(n, images, 3, s, s) for n, s in zip(counts, sizes, strict=False)]
    network = Pooling()
    found = embed_views(network, views)
    assert network.calls == [(count * images, size) for count, size in calls]
    expected = [view for group in views for view in group]
    assert len(found["h"]) == len(found["g"]) == len(expected)
    for number, view in enumerate(expected):
        torch.testing.assert_close(found["h"][number], view.mean(dim=(2, 3)))
        assert torch.equal(found["g"][number], view.amax(dim=(2, 3)))


def test_views_are_selected_by_their_number_through_all_groups() -> None:
    groups = [torch.arange(2).view(2, 1), torch.arange(2, 6).view(4, 1)]
    for start in range(7):
        for stop in range(start, 7):
            chosen = select_views(groups, start, stop)
            assert [int(v) for group in chosen for v in group] == list(range(6))[start:stop]


def test_micro_batches_put_together_are_the_batch() -> None:
    whole = {"h": torch.randn(2, 7, 5), "g": torch.randn(2, 7, 3, 4)}
    rows = [np.array([0, 1, 2]), np.array([], dtype=np.int64), np.array([3, 4, 5, 6])]
    parts = [
        dict(zip(whole, select_images(list(whole.values()), part), strict=True)) for part in rows
    ]
    found = concat_images(parts)
    assert all(torch.equal(found[name], whole[name]) for name in whole)
