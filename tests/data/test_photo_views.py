"""Views of photos and of their neighbors' photos, against PIL, and what is kept between them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch import Tensor

from images import photo_folder, picture, save_jpeg
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import Source, open_source
from wcl.data.photo_views import Crops, NeighborPhotos, PhotoViews, Task
from wcl.ops.randomness import Draws

pytestmark = pytest.mark.usefixtures("pil_resizes")

SEED, EPOCH = 3, 5
VIEWS = ViewMaker(AugmentConfig(), 24)
SMALL = ViewMaker(AugmentConfig(scale=(0.1, 0.3)), 16)
EVERY = 10**9


def upright(source: Source, index: int) -> Image.Image:
    image = source.image(index)
    assert isinstance(image, Image.Image)
    return ImageOps.exif_transpose(image).convert("RGB")


def cut_by_pil(source: Source, maker: ViewMaker, index: int, view: int, origin: int) -> Tensor:
    """What (seed, epoch, image, view) determines, from the whole photo of the origin."""
    image = upright(source, origin)
    draws = Draws(SEED, EPOCH, np.array([index]), np.array([view]))
    box = maker.boxes(np.array([image.height]), np.array([image.width]), draws)[0]
    top, left, height, width = box.tolist()
    crop = image.crop((left, top, left + width, top + height))
    resized = crop.resize((maker.size, maker.size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


def cut(source: Source, index: list[int], neighbors: list[list[int]], cache: int = EVERY) -> Crops:
    """Two views of each image, and a small crop of each of its neighbors."""
    rows = np.array(index, dtype=np.int64)
    crop_sources = [np.stack([rows, rows], axis=1), np.array(neighbors, dtype=np.int64)]
    return PhotoViews(source, SEED, cache)[Task(EPOCH, [VIEWS, SMALL], rows, crop_sources)]


def difference(a: Tensor, b: Tensor) -> float:
    """Mean over the pixels of the absolute difference, in steps of a byte."""
    assert a.shape == b.shape
    return (a.int() - b.int()).abs().float().mean().item()


def test_each_crop_is_pils_of_the_photo_that_it_is_of(tmp_path: Path) -> None:
    """Small photos, which are never reduced: bit for bit."""
    source = open_source(str(photo_folder(tmp_path / "data")))
    index, neighbors = [4, 0, 17], [[9, 4, 23], [0, 0, 5], [4, 4, 4]]
    found = cut(source, index, neighbors)
    assert found.index.tolist() == index
    assert [tuple(kind.shape) for kind in found.crops] == [(2, 3, 3, 24, 24), (3, 3, 3, 16, 16)]
    for row, image in enumerate(index):
        for view in range(2):
            expected = cut_by_pil(source, VIEWS, image, view, image)
            assert torch.equal(found.crops[0][view, row], expected)
        for k in range(3):
            expected = cut_by_pil(source, SMALL, image, 2 + k, neighbors[row][k])
            assert torch.equal(found.crops[1][k, row], expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_large_and_turned_neighbors_are_cut_nearly_as_from_the_whole_photo(
    orientation: int, tmp_path: Path
) -> None:
    """They are decoded at an eighth of their size: within two steps of a byte on average."""
    root = photo_folder(tmp_path / "data", each=2)
    save_jpeg(root / "dog" / "large.jpg", picture(7, 1200, 1600), orientation)
    source = open_source(str(root))
    large = len(source) - 1
    found = cut(source, [0, 1], [[large, large], [large, 0]])
    for row, neighbors in ((0, [large, large]), (1, [large, 0])):
        for k, origin in enumerate(neighbors):
            expected = cut_by_pil(source, SMALL, row, 2 + k, origin)
            assert difference(found.crops[1][k, row], expected) < 2
    photo = NeighborPhotos(source, EVERY).photo(large, SMALL)
    assert photo is not None
    assert photo.full_size == upright(source, large).size[::-1]
    assert photo.pixels.size == (photo.full_size[1] // 8, photo.full_size[0] // 8)


def test_large_and_turned_photos_are_cut_nearly_as_from_the_whole(tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", each=2)
    save_jpeg(root / "dog" / "large.jpg", picture(7, 1200, 1600), 6)
    source = open_source(str(root))
    large = len(source) - 1
    for neighbors in ([large, large], [0, large], [0, 1]):
        found = cut(source, [large], [neighbors])
        for view in range(2):
            expected = cut_by_pil(source, VIEWS, large, view, large)
            assert difference(found.crops[0][view, 0], expected) < 2
        for k, origin in enumerate(neighbors):
            expected = cut_by_pil(source, SMALL, large, 2 + k, origin)
            assert difference(found.crops[1][k, 0], expected) < 2


def test_a_photo_is_reduced_no_further_than_its_own_small_crops_allow(tmp_path: Path) -> None:
    """They would be enlarged: so the whole photo is decoded, and all are PIL's bit for bit."""
    (tmp_path / "data").mkdir()
    save_jpeg(tmp_path / "data" / "photo.jpg", picture(7, 240, 320))
    source = open_source(str(tmp_path / "data"))
    fine = ViewMaker(AugmentConfig(scale=(0.05, 0.1)), 64)
    own = np.zeros((1, 2), dtype=np.int64)
    task = Task(EPOCH, [VIEWS, fine], own[:, 0], [own, own])
    found = PhotoViews(source, SEED, 0)[task]
    for view in range(2):
        expected = cut_by_pil(source, VIEWS, 0, view, 0)
        assert torch.equal(found.crops[0][view, 0], expected)
        expected = cut_by_pil(source, fine, 0, 2 + view, 0)
        assert torch.equal(found.crops[1][view, 0], expected)


@pytest.mark.parametrize("damage", ["empty", "cut short", "missing"])
def test_a_neighbor_that_cannot_be_read_gives_a_crop_of_the_image_itself(
    damage: str, tmp_path: Path
) -> None:
    source = open_source(str(photo_folder(tmp_path / "data")))
    whole = cut(source, [2, 3], [[2, 8], [3, 3]])
    path = Path(source.where(6))
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else 400])
    found = cut(source, [2, 3], [[6, 8], [6, 6]])
    assert found.skipped == {}
    assert all(map(torch.equal, found.crops, whole.crops))


def test_an_image_that_cannot_be_read_is_left_out_whatever_its_neighbors(tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data")))
    whole = cut(source, [2, 6, 3], [[1, 8], [1, 2], [3, 9]])
    Path(source.where(6)).write_bytes(b"")
    found = cut(source, [2, 6, 3], [[1, 8], [1, 2], [3, 9]])
    assert found.index.tolist() == [2, 3]
    assert list(found.skipped) == [6]
    assert source.where(6) in found.skipped[6]
    for kind, gather_embeddings in zip(found.crops, whole.crops, strict=True):
        assert torch.equal(kind, gather_embeddings[:, [0, 2]])
    nothing = cut(source, [6], [[1, 2]])
    assert [tuple(kind.shape) for kind in nothing.crops] == [(2, 0, 3, 24, 24), (2, 0, 3, 16, 16)]


def kept(photos: NeighborPhotos, source: Source, indices: range) -> list[int]:
    """Which photos are still known once their files are gone."""
    for index in indices:
        Path(source.where(index)).unlink()
    return [index for index in indices if photos.photo(index, SMALL) is not None]


@pytest.mark.parametrize(
    ("room", "expected"),
    [(0, []), (1, []), (2.5, [0, 3]), (3.5, [0, 1, 3]), (100, [0, 1, 2, 3])],
)
def test_the_photos_used_last_are_kept_within_the_bytes_allowed(
    room: float, expected: list[int], tmp_path: Path
) -> None:
    """Asked for in the order 2, 1, 0, 3, 0: photos of one size, with room for so many."""
    (tmp_path / "data").mkdir()
    for i in range(4):
        picture(i, 40, 60).save(tmp_path / "data" / f"{i}.png")
    source = open_source(str(tmp_path / "data"))
    photos = NeighborPhotos(source, int(room * 40 * 60 * 3) - (room == 1))
    for index in (2, 1, 0, 3, 0):
        assert photos.photo(index, SMALL) is not None
    assert kept(photos, source, range(4)) == expected


def test_a_photo_that_was_used_again_outlives_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for i in range(3):
        picture(i, 40, 60).save(tmp_path / "data" / f"{i}.png")
    source = open_source(str(tmp_path / "data"))
    photos = NeighborPhotos(source, 2 * 40 * 60 * 3)
    for index in (0, 1, 0, 2):
        photos.photo(index, SMALL)
    assert kept(photos, source, range(3)) == [0, 2]


@pytest.mark.parametrize("cache", [0, 20_000, EVERY])
def test_what_was_cut_before_changes_no_crop(cache: int, tmp_path: Path) -> None:
    root = photo_folder(tmp_path / "data", each=4)
    save_jpeg(root / "dog" / "large.jpg", picture(7, 1200, 1600), 6)
    source = open_source(str(root))
    views = PhotoViews(source, SEED, cache)
    rows = np.arange(len(source), dtype=np.int64)
    crop_sources = np.random.default_rng(0).integers(0, len(source), (len(source), 4))
    own = np.stack([rows, rows], axis=1)
    tasks = [Task(EPOCH, [VIEWS, SMALL], rows[[i]], [own[[i]], crop_sources[[i]]]) for i in rows]
    there = [views[task] for task in tasks]
    back = [views[task] for task in tasks[::-1]][::-1]
    for a, b in zip(there, back, strict=True):
        assert all(map(torch.equal, a.crops, b.crops))


def test_a_photo_kept_from_the_early_epochs_changes_no_later_crop(tmp_path: Path) -> None:
    """Early epochs have a ratio of their own, and with it another least side."""
    root = photo_folder(tmp_path / "data", each=2)
    save_jpeg(root / "dog" / "large.jpg", picture(7, 600, 800))
    source = open_source(str(root))
    late = ViewMaker(dataclasses.replace(SMALL.config, ratio=(0.1, 10.0)), SMALL.size)
    rows = np.array([0], dtype=np.int64)
    crop_sources = [np.array([[0, 0]]), np.full((1, 4), len(source) - 1)]
    used, fresh = PhotoViews(source, SEED, EVERY), PhotoViews(source, SEED, EVERY)
    used[Task(0, [VIEWS, SMALL], rows, crop_sources)]
    task = Task(1, [VIEWS, late], rows, crop_sources)
    assert all(map(torch.equal, used[task].crops, fresh[task].crops))


@given(
    st.integers(0, 10**6),
    st.integers(8, 2000),
    st.integers(8, 2000),
    st.sampled_from([(0.05, 0.14), (0.1, 0.4), (0.3, 0.6), (1.0, 1.0)]),
    st.sampled_from([(0.75, 4 / 3), (1.0, 1.0), (0.5, 2.0), (0.2, 1.0)]),
)
def test_no_box_is_shorter_than_the_least_side_but_for_rounding(
    seed: int,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> None:
    maker = ViewMaker(AugmentConfig(scale=scale, ratio=ratio), 16)
    rows = np.arange(64, dtype=np.int64)
    draws = Draws(seed, 0, rows, np.zeros_like(rows))
    boxes = maker.boxes(np.full(64, height), np.full(64, width), draws)
    assert boxes[:, 2:].min() >= maker.least_side(height, width) - 0.5
