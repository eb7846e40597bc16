"""Batches of views: the order, the randomness, and that nobody's number of workers matters."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from images import photo_folder, picture, save_jpeg
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import ArraySource, Source, open_source, subset
from wcl.data.decode import decoded
from wcl.data.loader import Batch, Loader, views_of
from wcl.data.views import ViewSpec
from wcl.ops.randomness import Draws, Integers
from wcl.system.errors import InputError

CPU = torch.device("cpu")
DIGITS = AugmentConfig(mean=(0.3,), std=(0.35,), blur=0)


def digit_batches(batch_size: int, epoch: int = 0, start: int = 0, seed: int = 0) -> list[Batch]:
    loader = Loader(open_source("digits"), batch_size, seed, CPU)
    return list(loader.epoch(epoch, [ViewSpec(ViewMaker(DIGITS, 32, 1), 2)], start))


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
            large[0].views[0][view, row],
            small[5].views[0][view, 7],
            rtol=1e-5,
            atol=1e-5,
        )


def test_the_two_views_of_an_image_differ() -> None:
    views = digit_batches(256)[0].views[0]
    assert (views[0] != views[1]).flatten(1).any(dim=1).all()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_the_number_of_workers_changes_nothing(num_workers: int, tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data", each=24)))
    maker = [ViewSpec(ViewMaker(AugmentConfig(), 32), 2)]
    one, many = (
        Loader(source, 20, 0, CPU, num_workers=0),
        Loader(source, 20, 0, CPU, num_workers=num_workers),
    )
    for epoch in (0, 1):
        pairs = zip(one.epoch(epoch, maker), many.epoch(epoch, maker), strict=True)
        for a, b in pairs:
            assert np.array_equal(a.index, b.index)
            assert torch.equal(a.views[0], b.views[0])


@pytest.mark.usefixtures("pil_resizes")
def test_photos_are_cut_where_the_draws_say(tmp_path: Path) -> None:
    """Against PIL's own crop and resize of the box that (seed, epoch, image, view) determine."""
    source = open_source(str(photo_folder(tmp_path / "data")))
    plain = AugmentConfig(flip=0, jitter=0, grayscale=0, blur=0, mean=(0, 0, 0), std=(1, 1, 1))
    maker = ViewMaker(plain, 24)
    batch = next(iter(Loader(source, 4, 7, CPU, num_workers=0).epoch(2, [ViewSpec(maker, 2)])))
    for row, index in enumerate(batch.index.tolist()):
        image = decoded(source.image(index))
        assert isinstance(image, Image.Image)
        for view in (0, 1):
            draws = Draws(7, 2, np.array([index]), np.array([view]))
            box = maker.boxes(np.array([image.height]), np.array([image.width]), draws)[0]
            top, left, height, width = box.tolist()
            crop = image.crop((left, top, left + width, top + height)).resize((24, 24), 2)
            expected = torch.from_numpy(np.array(crop)).permute(2, 0, 1) / 255
            torch.testing.assert_close(batch.views[0][view, row], expected, rtol=0, atol=1e-6)


def test_fewer_images_than_a_batch_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        InputError, match=r"1297 images are fewer than one batch.*--batch_size of at most 1297"
    ):
        Loader(open_source("digits"), 2000, 0, CPU)


SMALL_DIGITS = dataclasses.replace(DIGITS, scale=(0.3, 0.6))
PLAIN = AugmentConfig(flip=0, jitter=0, grayscale=0, blur=0, mean=(0, 0, 0), std=(1, 1, 1))


def digit_specs(count: int, crop_sources: Integers | None = None) -> list[ViewSpec]:
    small = ViewMaker(SMALL_DIGITS, 16, 1)
    return [ViewSpec(ViewMaker(DIGITS, 32, 1), 2), ViewSpec(small, count, crop_sources)]


def photo_specs(count: int, crop_sources: Integers | None = None) -> list[ViewSpec]:
    """With the whole of the augmentation."""
    small = ViewMaker(AugmentConfig(scale=(0.1, 0.4)), 16)
    return [ViewSpec(ViewMaker(AugmentConfig(), 32), 2), ViewSpec(small, count, crop_sources)]


def some_origins(images: int, count: int) -> Integers:
    return np.random.default_rng(1).integers(0, images, (images, count))


def assert_same_batches(some: list[Batch], others: list[Batch]) -> None:
    for a, b in zip(some, others, strict=True):
        assert np.array_equal(a.index, b.index)
        assert a.skipped == b.skipped
        for one, two in zip(a.views, b.views, strict=True):
            assert torch.equal(one, two)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """46 readable photos, two of them large, one of these turned; and two that are damaged."""
    root = photo_folder(tmp_path_factory.mktemp("photos") / "data", each=24)
    save_jpeg(root / "cat" / "003.jpg", picture(5, 600, 800))
    save_jpeg(root / "dog" / "007.jpg", picture(6, 801, 603), orientation=6)
    (root / "cat" / "010.jpg").write_bytes(b"")
    (root / "dog" / "011.jpg").write_bytes((root / "dog" / "011.jpg").read_bytes()[:300])
    return open_source(str(root))


@pytest.mark.parametrize("count", [1, 3])
def test_each_kind_of_view_has_its_number_and_size(count: int, photos: Source) -> None:
    digits = next(Loader(open_source("digits"), 64, 0, CPU).epoch(0, digit_specs(count)))
    assert [tuple(v.shape) for v in digits.views] == [(2, 64, 1, 32, 32), (count, 64, 1, 16, 16)]
    batch = next(Loader(photos, 20, 0, CPU, num_workers=0).epoch(0, photo_specs(count)))
    seen = len(batch.index)
    assert seen + len(batch.skipped) == 20
    assert [tuple(v.shape) for v in batch.views] == [
        (2, seen, 3, 32, 32),
        (count, seen, 3, 16, 16),
    ]


@pytest.mark.parametrize("neighbors", [False, True])
def test_a_small_crop_in_memory_is_what_its_draws_make_of_its_origin(neighbors: bool) -> None:
    """Crop k of image i has the draws of (seed, epoch, i, 2 + k), whatever it is cut from."""
    source = open_source("digits")
    assert isinstance(source, ArraySource)
    table = some_origins(len(source), 3)
    specs = digit_specs(3, table if neighbors else None)
    batch = next(Loader(source, 32, 5, CPU).epoch(4, specs))
    for row, index in enumerate(batch.index.tolist()):
        for k in range(3):
            origin = int(table[index, k]) if neighbors else index
            draws = Draws(5, 4, np.array([index]), np.array([2 + k]))
            expected = specs[1].maker.from_images(source.pixels[origin][None], draws)
            found = batch.views[1][k, row]
            torch.testing.assert_close(found, expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("pil_resizes")
@pytest.mark.parametrize("neighbors", [False, True])
def test_a_small_crop_of_a_photo_is_pils_of_its_origin(neighbors: bool, tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data")))
    table = some_origins(len(source), 3)
    maker = ViewMaker(dataclasses.replace(PLAIN, scale=(0.1, 0.4)), 16)
    specs = [ViewSpec(ViewMaker(PLAIN, 24), 2), ViewSpec(maker, 3, table if neighbors else None)]
    batch = next(Loader(source, 8, 7, CPU, num_workers=0).epoch(2, specs))
    for row, index in enumerate(batch.index.tolist()):
        for k in range(3):
            image = decoded(source.image(int(table[index, k]) if neighbors else index))
            assert isinstance(image, Image.Image)
            draws = Draws(7, 2, np.array([index]), np.array([2 + k]))
            box = maker.boxes(np.array([image.height]), np.array([image.width]), draws)[0]
            top, left, height, width = box.tolist()
            crop = image.crop((left, top, left + width, top + height)).resize((16, 16), 2)
            expected = torch.from_numpy(np.array(crop)).permute(2, 0, 1) / 255
            torch.testing.assert_close(batch.views[1][k, row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("neighbors", [False, True])
def test_small_crops_leave_the_views_as_they_were(neighbors: bool, tmp_path: Path) -> None:
    """Bit for bit, where photos are not so large that they are decoded at a reduced scale."""
    folder = open_source(str(photo_folder(tmp_path / "data")))
    for source, specs in ((open_source("digits"), digit_specs), (folder, photo_specs)):
        loader = Loader(source, 8, 0, CPU, num_workers=0)
        table = some_origins(len(source), 4) if neighbors else None
        alone = next(loader.epoch(1, specs(0)[:1]))
        beside = next(loader.epoch(1, specs(4, table)))
        assert np.array_equal(alone.index, beside.index)
        assert torch.equal(alone.views[0], beside.views[0])


def test_more_crops_leave_the_first_ones_as_they_were() -> None:
    source = open_source("digits")
    table = some_origins(len(source), 4)
    two = next(Loader(source, 64, 0, CPU).epoch(0, digit_specs(2, table[:, :2])))
    four = next(Loader(source, 64, 0, CPU).epoch(0, digit_specs(4, table)))
    torch.testing.assert_close(two.views[1], four.views[1][:2], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def epochs_of_neighbors(photos: Source) -> list[Batch]:
    """Three epochs without worker processes, every photo kept; plain crops and neighbors'."""
    return batches_of_three_epochs(Loader(photos, 16, 0, CPU, num_workers=0, cache=2**30))


def batches_of_three_epochs(loader: Loader) -> list[Batch]:
    table = some_origins(len(loader.source), 3)
    specs = [photo_specs(3), photo_specs(3, table), photo_specs(3, table[::-1].copy())]
    return [batch for epoch in range(3) for batch in loader.epoch(epoch, specs[epoch])]


@pytest.mark.parametrize(
    ("num_workers", "cache"), [(0, 0), (0, 30_000), (1, 2**30), (1, 0), (3, 90_000), (3, 2**30)]
)
def test_neither_workers_nor_their_cache_change_a_crop(
    num_workers: int, cache: int, photos: Source, epochs_of_neighbors: list[Batch]
) -> None:
    loader = Loader(photos, 16, 0, CPU, num_workers=num_workers, cache=cache)
    assert_same_batches(batches_of_three_epochs(loader), epochs_of_neighbors)


def test_an_epoch_of_neighbors_can_begin_at_any_step(
    photos: Source, epochs_of_neighbors: list[Batch]
) -> None:
    specs = photo_specs(3, some_origins(len(photos), 3))
    rest = list(Loader(photos, 16, 0, CPU, num_workers=1).epoch(1, specs, start=2))
    assert_same_batches(rest, epochs_of_neighbors[5:6])


def damaged(kind: str, photos: Source) -> tuple[Source, list[ViewSpec], list[ViewSpec], list[int]]:
    """Images, their plain views, their views cut from unreadable images, and which these are."""
    if kind == "photos":
        bad = [10, 24 + 11]
        return photos, photo_specs(2), photo_specs(2, np.tile(bad, (len(photos), 1))), bad
    digits = open_source("digits")
    assert isinstance(digits, ArraySource)
    source = ArraySource("some", digits.pixels[:48], None)
    source.unreadable = {5: "damaged", 20: "cut short"}
    bad = list(source.unreadable)
    return source, digit_specs(2), digit_specs(2, np.tile(bad, (len(source), 1))), bad


@pytest.mark.parametrize("kind", ["memory", "photos"])
def test_unreadable_neighbors_give_crops_of_the_image_and_unreadable_images_none(
    kind: str, photos: Source
) -> None:
    source, plain, lost, bad = damaged(kind, photos)
    loader = Loader(source, 16, 0, CPU, num_workers=0)
    found = list(loader.epoch(0, lost))
    assert_same_batches(found, list(loader.epoch(0, plain)))
    assert sorted(index for batch in found for index in batch.skipped) == bad
    seen = np.concatenate([batch.index for batch in found])
    assert sorted([*seen.tolist(), *bad]) == list(range(48))
    for batch in found:
        assert [views.shape[:2] for views in batch.views] == [(2, len(batch.index))] * 2


@pytest.mark.parametrize("kind", ["memory", "photos"])
def test_views_of_chosen_images_are_those_of_the_first_epoch(kind: str, photos: Source) -> None:
    source, specs, _, _ = damaged(kind, photos)
    (batch, *_) = Loader(source, 16, 7, CPU, num_workers=0).epoch(0, specs)
    assert_same_batches([views_of(source, batch.global_index, specs, seed=7)], [batch])


@pytest.mark.parametrize("kind", ["memory", "photos"])
def test_a_batch_of_which_nothing_can_be_read_is_empty(kind: str, photos: Source) -> None:
    source, plain, lost, bad = damaged(kind, photos)
    part = subset(source, np.array(bad))
    for specs in (plain, lost):
        table = None if specs is plain else np.array([[0, 1], [1, 0]])
        specs = [specs[0], dataclasses.replace(specs[1], crop_sources=table)]
        (batch,) = Loader(part, 2, 0, CPU, num_workers=0).epoch(0, specs)
        assert len(batch.index) == 0
        assert [views.shape[:2] for views in batch.views] == [(2, 0), (2, 0)]
        assert sorted(batch.skipped) == [0, 1]
