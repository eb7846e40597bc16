"""The feature bank against a dictionary of the last features, sorted in double precision."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from wcl.distributed.world import World
from wcl.neighbors import FeatureBank, SearchResult, bank, exact
from wcl.system.errors import InputError, RunError
from wcl.system.machine import available_memory


def features_of(images: int, width: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(images, width, generator=torch.Generator().manual_seed(seed))


def filled(images: int, width: int = 8, path: Path | None = None) -> FeatureBank:
    made = FeatureBank(images, width, path)
    made.store([np.arange(images)], features_of(images, width))
    return made


def as_kept(features: Tensor) -> Tensor:
    """What half precision leaves of the direction of each row, in double precision."""
    return F.normalize(F.normalize(features.float(), dim=1).half().double(), dim=1)


def same(one: SearchResult, other: SearchResult) -> bool:
    return one.recall == other.recall and all(
        torch.equal(a, b) for a, b in zip(one[:3], other[:3], strict=True)
    )


def assert_nearest(found: SearchResult, kept: dict[int, Tensor], k: int) -> None:
    """Compare with sorting the cosines of all images that have a feature."""
    for row, neighbors, similarity in zip(*(part.tolist() for part in found[:3]), strict=True):
        cosine = {i: float(f @ kept[row]) for i, f in kept.items() if i != row}
        assert row not in neighbors
        assert len(set(neighbors)) == len(neighbors) == min(k, len(cosine))
        highest = sorted(cosine.values(), reverse=True)[: len(neighbors)]
        assert similarity == pytest.approx(highest, abs=1e-6)
        assert [cosine[i] for i in neighbors] == pytest.approx(highest, abs=1e-6)


@st.composite
def epochs_of_batches(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    """A number of images, and the images of each step; no step has one twice."""
    images = draw(st.integers(3, 20))
    batch = st.lists(st.integers(0, images - 1), min_size=1, max_size=8, unique=True)
    return images, draw(st.lists(batch, min_size=1, max_size=8))


@settings(max_examples=80)
@given(epochs_of_batches(), st.integers(1, 6))
def test_each_image_is_searched_by_its_last_feature_and_one_never_seen_not_at_all(
    made: tuple[int, list[list[int]]], k: int
) -> None:
    images, batches = made
    stored, last = FeatureBank(images, 5), dict[int, Tensor]()
    for step, batch in enumerate(batches):
        h = features_of(len(batch), 5, seed=step)
        stored.store([np.array(batch)], h)
        last.update(zip(batch, as_kept(h), strict=True))
    assert stored.seen.nonzero()[:, 0].tolist() == sorted(last)
    found = stored.search(k)
    assert found.recall == 1
    assert found.rows.tolist() == sorted(last)
    assert_nearest(found, last, k)


def test_an_image_that_an_epoch_did_not_see_keeps_its_last_feature() -> None:
    stored = filled(6, 4)
    before = stored.features.clone()
    stored.store([np.array([0, 2, 3, 5])], features_of(4, 4, seed=1))
    assert stored.seen.all()
    assert torch.equal(stored.features[[1, 4]], before[[1, 4]])
    assert not (stored.features[[0, 2, 3, 5]] == before[[0, 2, 3, 5]]).all(dim=1).any()


def test_features_are_kept_as_unit_vectors_in_half_precision() -> None:
    stored = FeatureBank(40, 16)
    h = 1e5 * features_of(40, 16)  # half precision alone would end at 65504
    stored.store([np.arange(40)], h.requires_grad_())
    assert stored.features.dtype == torch.float16
    assert not stored.features.requires_grad
    unit = F.normalize(h.detach().double(), dim=1)
    torch.testing.assert_close(stored.features.double(), unit, rtol=2**-11, atol=1e-7)


def test_only_the_images_asked_about_are_answered_in_the_order_of_the_question() -> None:
    stored = FeatureBank(30, 8)
    h = features_of(20)
    stored.store([np.arange(20)], h)
    found = stored.search(4, torch.tensor([7, 25, 3, 19, 29]))
    assert found.rows.tolist() == [7, 3, 19]
    assert found.neighbors.shape == found.similarity.shape == (3, 4)
    assert_nearest(found, dict(enumerate(as_kept(h))), 4)


def test_the_question_about_images_never_seen_has_an_empty_answer() -> None:
    stored = FeatureBank(10, 8)
    stored.store([np.arange(5)], features_of(5))
    found = stored.search(3, torch.tensor([7, 9]))
    assert len(found.rows) == 0
    assert found.neighbors.shape == found.similarity.shape == (0, 3)


def test_searching_in_parts_and_on_a_named_device_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = filled(50)
    whole = stored.search(4)
    assert same(stored.search(4, device=torch.device("cpu")), whole)
    monkeypatch.setattr(exact, "_QUERIES_AT_A_TIME", 7)
    assert same(stored.search(4), whole)
    approximate = stored.search(4, mode="approximate")
    monkeypatch.setattr(bank, "_QUERIES_AT_A_TIME", 7)
    assert same(stored.search(4, mode="approximate"), approximate)


def test_few_images_or_few_questions_are_searched_exactly_and_many_approximately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, few = filled(300), torch.arange(40)
    exact, approximate = stored.search(5, mode="exact"), stored.search(5, mode="approximate")
    assert not same(exact, approximate)  # else there is nothing to tell apart
    assert same(stored.search(5), exact)
    monkeypatch.setattr(bank, "_EXACT_UP_TO", {"cpu": 299})
    assert same(stored.search(5), exact)
    monkeypatch.setattr(bank, "_QUERIES_AT_A_TIME", 40)
    assert same(stored.search(5), approximate)
    assert same(stored.search(5, few), stored.search(5, few, "exact"))


def test_approximate_search_neither_asks_about_nor_finds_images_never_seen() -> None:
    stored = FeatureBank(600, 8)
    rows = torch.arange(600)[torch.arange(600) % 3 != 1]
    h = features_of(len(rows))
    stored.store([rows.numpy()], h)
    found = stored.search(5, mode="approximate")
    assert torch.equal(found.rows, rows)
    assert stored.seen[found.neighbors].all()
    assert not (found.neighbors == rows[:, None]).any()
    truth = stored.search(5, mode="exact").neighbors.tolist()
    hits = sum(len({*a} & {*b}) for a, b in zip(truth, found.neighbors.tolist(), strict=True))
    assert found.recall == pytest.approx(hits / found.neighbors.numel(), abs=1e-6)
    assert found.recall >= 0.95
    assert same(stored.search(5, mode="approximate"), found)


def test_a_bank_on_disk_is_the_bank_in_memory_and_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    memory, disk = filled(40, 6), filled(40, 6, folder)
    for stored in (memory, disk):
        stored.store([np.array([3, 17])], features_of(2, 6, seed=1))
    assert torch.equal(memory.features, disk.features)
    assert same(memory.search(5), disk.search(5))
    assert disk.bytes == memory.bytes == 40 * 6 * 2
    assert list(folder.iterdir()) == []  # its file has no name: it is gone with the process


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists what is mapped")
def test_a_bank_on_disk_is_a_file_mapped_into_memory(tmp_path: Path) -> None:
    stored = filled(40, 6, tmp_path)
    assert str(tmp_path / ".bank-") in Path("/proc/self/maps").read_text()
    assert len(stored.features) == 40


def test_a_bank_larger_than_memory_is_refused_with_its_size_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bank, "available_memory", lambda: 3_000_000_000)
    with pytest.raises(InputError) as refused:
        FeatureBank(1_281_167, 2048)
    message = str(refused.value)
    assert "1,281,167 images × 2048 features × 2 B = 5.2 GB" in message
    assert "more than the 3.0 GB" in message
    assert "--crops.bank disk" in message


def test_a_bank_of_just_the_memory_at_hand_is_made_and_one_on_disk_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank, "available_memory", lambda: 100 * 8 * 2)
    FeatureBank(100, 8)
    with pytest.raises(InputError):
        FeatureBank(101, 8)
    FeatureBank(101, 8, tmp_path)


def test_a_bank_that_the_disk_has_no_place_for_is_refused_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**24, hard))  # as good as a full disk
    try:
        with pytest.raises(RunError, match=r"run: no room for a feature bank"):
            FeatureBank(1000, 2**14, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(path.iterdir()) == []


def test_a_bank_of_several_processes_needs_the_memory_of_those_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bank, "available_memory", lambda: 50 * 8 * 2)
    FeatureBank(100, 8, world=World(1, 4, local_size=2))
    with pytest.raises(InputError):
        FeatureBank(100, 8, world=World(1, 4, local_size=3))


def test_a_bank_describes_its_size() -> None:
    words = "50,000 images × 512 features × 2 B = 51 MB"
    assert FeatureBank(50_000, 512).describe() == words
    assert FeatureBank(400, 128).describe() == "400 images × 128 features × 2 B = 102 kB"
    shared = FeatureBank(50_000, 512, world=World(1, 3))
    assert shared.describe() == f"{words}, 17 MB in each of 3 processes"


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_restored_bank_goes_on_where_the_other_was(on_disk: bool, tmp_path: Path) -> None:
    first = FeatureBank(30, 8)
    first.store([np.arange(0, 30, 2)], features_of(15))
    torch.save(first.state(tmp_path), tmp_path / "state.pt")
    second = FeatureBank(30, 8, tmp_path if on_disk else None)
    second.restore(torch.load(tmp_path / "state.pt"))
    assert same(first.search(4), second.search(4))
    for stored in (first, second):
        stored.store([np.array([1, 2])], features_of(2, seed=1))
    assert same(first.search(4), second.search(4))


def test_the_memory_at_hand_is_some_and_not_more_than_the_machine_has() -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() <= physical


def test_a_bank_of_a_few_more_images_than_a_block_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "_KEYS_AT_A_TIME", 20)
    stored = FeatureBank(44, 4)
    h = features_of(42, 4)
    stored.store([np.arange(42)], h)
    found = stored.search(4, torch.tensor([41]))
    assert found.rows.tolist() == [41]
    assert_nearest(found, dict(enumerate(as_kept(h))), 4)


@pytest.mark.parametrize("count", [2, 5, 8, 12, 15])
def test_approximate_search_of_few_images_is_exact(count: int) -> None:
    """So few images are in one list, which is searched completely."""
    stored = filled(count)
    found = stored.search(1, mode="approximate")
    assert found.recall == 1
    assert_nearest(found, dict(enumerate(as_kept(features_of(count)))), 1)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_bank_whose_folder_is_a_file_is_refused_in_one_line(below: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(RunError, match="no room for a feature bank"):
        FeatureBank(10, 4, path / below if below else path)
    assert path.read_text() == "mine"
