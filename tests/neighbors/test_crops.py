"""Whose crops an epoch cuts, and what is said of them, against sorting and counting by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from wcl.config import CropsConfig
from wcl.data import ArraySource
from wcl.neighbors import crops as module
from wcl.neighbors.crops import NeighborCrops
from wcl.system.errors import InputError

WIDTH = 6
CLASSES = torch.arange(12) % 3


def around(
    tmp_path: Path,
    images: int = 12,
    labels: Tensor | None = CLASSES,
    epochs: int = 8,
    **settings: Any,
) -> NeighborCrops:
    pixels = torch.zeros(images, 1, 4, 4, dtype=torch.uint8)
    source = ArraySource("made", pixels, None if labels is None else labels[:images])
    config = CropsConfig(**{"count": 3, **settings})
    return NeighborCrops(config, epochs, source, WIDTH, torch.device("cpu"), tmp_path)


def see(here: NeighborCrops, seed: int, rows: list[int] | None = None) -> dict[int, list[int]]:
    """Store new features of some images; the order in which each then finds the others of them."""
    rows = list(range(len(here.bank.seen))) if rows is None else rows
    h = torch.randn(len(rows), WIDTH, generator=torch.Generator().manual_seed(seed))
    here.bank.store([np.array(rows)], h)
    unit = F.normalize(h.double(), dim=1)
    order = (unit @ unit.T).argsort(dim=1, descending=True).tolist()
    return {rows[i]: [rows[j] for j in order[i] if j != i] for i in range(len(rows))}


def table_of(here: NeighborCrops) -> list[list[int]]:
    assert here.table is not None
    return here.table.tolist()  # type: ignore[no-any-return]


def share_of_same_class(table: dict[int, list[int]]) -> float:
    classes: list[int] = CLASSES.tolist()
    same = [classes[i] == classes[j] for i, others in table.items() for j in others]
    return sum(same) / len(same)


def without_time(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name != "search_seconds"}


@pytest.mark.parametrize(("warmup", "first"), [(0, 0), (0.25, 2), (0.5, 4), (1, 1), (5, 5), (8, 8)])
def test_crops_are_of_neighbors_once_a_warmup_in_shares_or_epochs_is_over(
    warmup: float, first: int, tmp_path: Path
) -> None:
    here = around(tmp_path, epochs=8, warmup=warmup)
    assert here.first_epoch == first
    order: dict[int, list[int]] = {}
    for epoch in range(8):
        # The first epoch has no features to find neighbors by, even without a warm-up.
        plain = epoch < max(first, 1)
        crop_sources = here.crop_sources(epoch)
        assert (crop_sources is None) == plain
        if crop_sources is not None:
            assert crop_sources.tolist() == [order[row][:3] for row in range(12)]
        order = see(here, seed=epoch)
        here.end_of_epoch(epoch)
        assert (here.table is None) == (epoch + 1 < first)


def test_each_crop_has_its_own_neighbor_nearest_first(tmp_path: Path) -> None:
    here = around(tmp_path, warmup=0)
    order = see(here, seed=0)
    values = here.end_of_epoch(0)
    assert table_of(here) == [order[image][:3] for image in range(12)]
    assert here.table is not None
    assert here.table.dtype == np.int64
    assert values["search_recall"] == 1


def test_an_image_never_seen_is_its_own_neighbor_and_nobody_elses(tmp_path: Path) -> None:
    here = around(tmp_path, warmup=0)
    order = see(here, seed=0, rows=[0, 2, 3, 6, 7, 8, 11])
    here.end_of_epoch(0)
    expected = [order[image][:3] if image in order else [image] * 3 for image in range(12)]
    assert table_of(here) == expected


@pytest.mark.parametrize("seen", [2, 3, 4])
def test_where_fewer_images_than_crops_have_features_the_rest_is_of_the_image_itself(
    seen: int, tmp_path: Path
) -> None:
    here = around(tmp_path, warmup=0, count=5)
    order = see(here, seed=0, rows=list(range(seen)))
    here.end_of_epoch(0)
    for image, row in enumerate(table_of(here)):
        others = order.get(image, [])
        assert row == others + [image] * (5 - len(others))


def test_plain_crops_are_all_of_their_class_and_later_ones_as_the_table_of_their_epoch(
    tmp_path: Path,
) -> None:
    here = around(tmp_path, warmup=2)
    crops: dict[int, list[int]] = {}
    for epoch in range(4):
        order = see(here, seed=epoch)
        values = here.end_of_epoch(epoch)
        found = {image: others[:3] for image, others in order.items()}
        assert values["neighbor_same_class"] == pytest.approx(share_of_same_class(found))
        expected = 1 if epoch < 2 else share_of_same_class(crops)
        assert values["crop_same_class"] == pytest.approx(expected)
        crops = found


def test_images_without_features_count_among_the_crops_but_not_among_the_neighbors(
    tmp_path: Path,
) -> None:
    here = around(tmp_path, warmup=0)
    some = list(range(8))
    found = {image: others[:3] for image, others in see(here, 0, some).items()}
    here.end_of_epoch(0)
    values = here.end_of_epoch(1)
    assert values["neighbor_same_class"] == pytest.approx(share_of_same_class(found))
    crops = {image: found.get(image, [image] * 3) for image in range(12)}
    assert values["crop_same_class"] == pytest.approx(share_of_same_class(crops))


def test_without_labels_nothing_is_said_of_classes(tmp_path: Path) -> None:
    here = around(tmp_path, labels=None, warmup=0)
    for epoch in range(2):
        see(here, seed=epoch)
        values = here.end_of_epoch(epoch)
        assert not [name for name in values if "class" in name]


def test_neighbors_changed_are_those_that_the_table_before_did_not_have(tmp_path: Path) -> None:
    here = around(tmp_path, warmup=2)
    seen = [list(range(12)), list(range(10)), list(range(10)), list(range(12)), []]
    before: list[list[int]] | None = None
    for epoch, rows in enumerate(seen):
        if rows:
            see(here, epoch, rows)
        values = here.end_of_epoch(epoch)
        if before is None:  # of an epoch followed by plain crops, and of the first search
            assert "neighbors_changed" not in values
        else:
            pairs = list(zip(table_of(here), before, strict=True))
            new = sum(len(set(now) - set(then)) for now, then in pairs)
            assert values["neighbors_changed"] == pytest.approx(new / 36, abs=1e-6)
        before = None if here.table is None else table_of(here)
    assert values["neighbors_changed"] == 0  # of the same features


def test_in_plain_epochs_a_sample_tells_the_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 4)
    here = around(tmp_path, warmup=5)
    order = see(here, seed=0)
    values = here.end_of_epoch(0)
    sample = {image: order[image][:3] for image in (0, 4, 7, 11)}
    assert values["neighbor_same_class"] == pytest.approx(share_of_same_class(sample))
    unit = F.normalize(here.bank.features.double(), dim=1)
    cosine = [float(unit[i] @ unit[j]) for i, others in sample.items() for j in others]
    assert values["neighbor_similarity"] == pytest.approx(sum(cosine) / 12, abs=1e-6)
    assert here.table is None


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_the_search_is_the_one_that_the_settings_name(search: str, tmp_path: Path) -> None:
    labels = torch.arange(300) % 3
    here = around(tmp_path, images=300, labels=labels, warmup=0, search=search)
    see(here, seed=0)
    values = here.end_of_epoch(0)
    found = here.bank.search(3, mode=search)  # type: ignore[arg-type]
    assert table_of(here) == found.neighbors.tolist()
    assert values["search_recall"] == found.recall


def test_a_bank_on_disk_gives_the_table_of_one_in_memory(tmp_path: Path) -> None:
    memory = around(tmp_path, warmup=0)
    assert not list(tmp_path.iterdir())
    disk = around(tmp_path, warmup=0, bank="disk")
    see(memory, seed=0)
    see(disk, seed=0)
    assert without_time(memory.end_of_epoch(0)) == without_time(disk.end_of_epoch(0))
    assert table_of(memory) == table_of(disk)


@pytest.mark.parametrize("epochs_before", [0, 1, 2, 3])
def test_a_restored_neighborhood_goes_on_as_the_other_does(
    epochs_before: int, tmp_path: Path
) -> None:
    first = around(tmp_path, warmup=2)
    for epoch in range(epochs_before):
        see(first, epoch, list(range(3 + 4 * epoch, 12)) or None)
        first.end_of_epoch(epoch)
    torch.save(first.state(), tmp_path / "state.pt")
    second = around(tmp_path, warmup=2)
    second.restore(torch.load(tmp_path / "state.pt"))
    assert (first.table is None) == (second.table is None) == (epochs_before < 2)
    for epoch in range(epochs_before, 5):
        one, other = first.crop_sources(epoch), second.crop_sources(epoch)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert np.array_equal(one, other)
        for here in (first, second):
            see(here, seed=100 + epoch, rows=[1, 2, 5, 9])
        assert without_time(first.end_of_epoch(epoch)) == without_time(second.end_of_epoch(epoch))


@pytest.mark.parametrize(("images", "count"), [(12, 12), (12, 40), (1, 1)])
def test_as_many_neighbors_as_images_are_refused(images: int, count: int, tmp_path: Path) -> None:
    message = rf"--crops\.count: {images} images have at most {images - 1} .* not {count}$"
    with pytest.raises(InputError, match=message):
        around(tmp_path, images=images, count=count)


def test_all_other_images_may_be_neighbors(tmp_path: Path) -> None:
    here = around(tmp_path, warmup=0, count=11)
    order = see(here, seed=0)
    here.end_of_epoch(0)
    assert table_of(here) == [order[image] for image in range(12)]
