"""Batches of views: the order, the randomness, and that nobody's number of workers matters."""

from pathlib import Path

import numpy as np
import pytest
import torch

from images import photo_folder
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import open_source
from wcl.data.loader import Batch, Loader, Views
from wcl.errors import InputError
from wcl.randomness import Draws

CPU = torch.device("cpu")
DIGITS = AugmentConfig(mean=(0.3,), std=(0.35,), blur=0)


def digit_batches(batch: int, epoch: int = 0, start: int = 0, seed: int = 0) -> list[Batch]:
    loader = Loader(open_source("digits"), batch, seed, CPU)
    return list(loader.epoch(epoch, [Views(ViewMaker(DIGITS, 32, 1), 2)], start))


def test_an_epoch_has_every_image_once_but_for_the_rest() -> None:
    batches = digit_batches(256)
    seen = np.concatenate([batch.index for batch in batches])
    assert len(batches) == 1297 // 256
    assert len(np.unique(seen)) == len(seen) == 5 * 256


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first = digit_batches(512)[0].index
    assert not np.array_equal(first, digit_batches(512, epoch=1)[0].index)
    assert not np.array_equal(first, digit_batches(512, seed=1)[0].index)
    assert np.array_equal(first, digit_batches(512)[0].index)


def test_an_epoch_can_begin_at_any_step() -> None:
    whole, rest = digit_batches(256), digit_batches(256, start=3)
    assert len(rest) == 2
    for a, b in zip(whole[3:], rest, strict=True):
        assert np.array_equal(a.index, b.index)
        assert torch.equal(a.views[0], b.views[0])


def test_a_view_depends_on_seed_epoch_image_and_view_and_not_on_its_batch() -> None:
    large, small = digit_batches(1024), digit_batches(64)
    index = int(small[5].index[7])
    row = int(np.flatnonzero(large[0].index == index)[0])
    for view in (0, 1):
        torch.testing.assert_close(
            large[0].views[0][view * 1024 + row],
            small[5].views[0][view * 64 + 7],
            rtol=1e-5,
            atol=1e-5,
        )


def test_the_two_views_of_an_image_differ() -> None:
    views = digit_batches(256)[0].views[0].unflatten(0, (2, -1))
    assert (views[0] != views[1]).flatten(1).any(dim=1).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(workers: int, tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data", each=24)))
    maker = [Views(ViewMaker(AugmentConfig(), 32), 2)]
    one, many = Loader(source, 20, 0, CPU, workers=0), Loader(source, 20, 0, CPU, workers=workers)
    for epoch in (0, 1):
        pairs = zip(one.epoch(epoch, maker), many.epoch(epoch, maker), strict=True)
        for a, b in pairs:
            assert np.array_equal(a.index, b.index)
            assert torch.equal(a.views[0], b.views[0])


def test_photos_are_cut_where_the_draws_say(tmp_path: Path) -> None:
    """Against PIL's own crop and resize of the box that (seed, epoch, image, view) determine."""
    source = open_source(str(photo_folder(tmp_path / "data")))
    plain = AugmentConfig(flip=0, jitter=0, grey=0, blur=0, mean=(0, 0, 0), std=(1, 1, 1))
    maker = ViewMaker(plain, 24)
    batch = next(iter(Loader(source, 4, 7, CPU, workers=1).epoch(2, [Views(maker, 2)])))
    for row, index in enumerate(batch.index.tolist()):
        image = source.image(index).convert("RGB")
        for view in (0, 1):
            draws = Draws(7, 2, np.array([index]), np.array([view]))
            box = maker.boxes(np.array([image.height]), np.array([image.width]), draws)[0]
            top, left, height, width = box.tolist()
            crop = image.crop((left, top, left + width, top + height)).resize((24, 24), 2)
            expected = torch.from_numpy(np.array(crop)).permute(2, 0, 1) / 255
            torch.testing.assert_close(batch.views[0][view * 4 + row], expected, rtol=0, atol=1e-6)


def test_fewer_images_than_a_batch_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"1297 images are fewer than one batch.*--batch 1024"):
        Loader(open_source("digits"), 2000, 0, CPU)
