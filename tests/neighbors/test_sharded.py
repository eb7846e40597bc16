"""Banks and searches of several real processes against those of one."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

from wcl.config import CropsConfig
from wcl.data import ArraySource
from wcl.distributed.world import World
from wcl.neighbors import FeatureBank, SearchResult, bank, exact
from wcl.neighbors.crops import NeighborCrops
from wcl.ops.randomness import Integers

IMAGES = 301  # of which neither 2 nor 3 processes keep equal parts
WIDTH = 24
SEEN = np.delete(np.arange(IMAGES), [0, 4, 99, 100, 101, 150, 300])
Search = Literal["exact", "approximate"]
SEARCHES: tuple[Search, ...] = ("exact", "approximate")
DIED = 7  # exit status
LIMIT = timedelta(seconds=60)  # for an answer of another process


def normal(count: int, width: int = WIDTH, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def show(here: FeatureBank, world: World, images: Integers, h: Tensor) -> None:
    """Store features, an image with this process and the next with another, in two steps."""
    shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(1)).numpy()
    for step in np.array_split(shuffled, [len(shuffled) // 3]):
        # Of the last process there are fewer, as of one with unreadable images.
        positions = [step[rank :: world.size] for rank in range(world.size)]
        if world.size > 1:
            positions[0] = np.concatenate([positions[0], positions[-1][4:]])
            positions[-1] = positions[-1][:4]
        here.store([images[p] for p in positions], h[positions[world.rank]])


def shown(
    world: World, images: Integers, h: Tensor, count: int = IMAGES, folder: Path | None = None
) -> FeatureBank:
    here = FeatureBank(count, h.shape[1], folder, world)
    show(here, world, images, h)
    return here


def around(world: World, folder: Path, search: Search) -> NeighborCrops:
    pixels = torch.zeros(IMAGES, 1, 4, 4, dtype=torch.uint8)
    source = ArraySource("made", pixels, torch.arange(IMAGES) % 5)
    config = CropsConfig(count=3, warmup=0, search=search)
    return NeighborCrops(config, 5, source, WIDTH, torch.device("cpu"), folder, world)


def answers(world: World, folder: Path) -> dict[str, Any]:
    """What is found in several banks, and what is saved of them."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_KEYS_AT_A_TIME", 40)  # in no relation to what a process keeps
        patch.setattr(bank, "_ROWS_AT_A_TIME", 17)
        some = torch.tensor([299, 3, 0, 160, 100, 17, 298])
        here = shown(world, SEEN, normal(len(SEEN)))
        found["kept"] = len(here.features)
        found["seen"] = here.seen
        found["all"] = here.search(5)
        found["some"] = here.search(5, some)
        found["one"] = here.search(5, torch.tensor([200]), device=torch.device("cpu"))
        found["none"] = here.search(5, torch.tensor([0, 300]))
        found["disk"] = shown(world, SEEN, normal(len(SEEN)), folder=folder).search(5)
        every = np.arange(IMAGES)
        found["ties"] = shown(world, every, normal(IMAGES, 4).sign()).search(7)
        found["alike"] = shown(world, every, torch.ones(IMAGES, 5)).search(7)
        found["two images"] = shown(world, np.arange(2), normal(2), 2).search(4)
        found["wide"] = shown(world, every, normal(IMAGES, 512)).search(3)
        found["near"] = shown(world, SEEN, normal(len(SEEN))).search(5, mode="approximate")
        few = shown(world, SEEN[:60], normal(60))  # of three processes two have none
        found["near few"] = few.search(5, some, "approximate")
        found["near many"] = few.search(59, mode="approximate")
        for search in SEARCHES:
            neighbor_crops = around(world, folder, search)
            for epoch in range(2):
                show(neighbor_crops.bank, world, SEEN, normal(len(SEEN), seed=epoch))
                found[f"figures {search} {epoch}"] = neighbor_crops.end_of_epoch(epoch)
            found[f"table {search}"] = neighbor_crops.table
        state = here.state(folder / "deeper")
        found["names"] = sorted(state)
        if world.is_rank_zero:
            torch.save(state, folder / f"saved by {world.size}.pt")
    return found


def go_on(world: World, saved: Path, folder: Path) -> SearchResult:
    """The last search of a run that others began."""
    here = FeatureBank(IMAGES, WIDTH, folder, world)
    here.restore(torch.load(saved, mmap=True))
    show(here, world, np.arange(3, 90, 2), normal(44, seed=5))
    return here.search(4)


def die_in_search(world: World) -> None:
    """A search in which the last process dies between two blocks, and the others say what of it."""
    here = shown(world, SEEN, normal(len(SEEN)))
    broadcast, calls = world.broadcast, 0

    def or_die(values: Tensor, source: int) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 4 and world.rank == world.size - 1:
            os._exit(DIED)
        return broadcast(values, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_KEYS_AT_A_TIME", 40)
        patch.setattr(world, "broadcast", or_die)
        here.search(5)


def of_process(rank: int, folder: Path) -> None:
    """All that is asked of one of three processes: starting them takes the most time of it."""
    torch.set_num_threads(1)

    def join(size: int, name: str) -> World:
        meeting = f"file://{folder / name}"
        dist.init_process_group("gloo", meeting, LIMIT, size, rank)
        return World(rank, size)

    if rank < 2:
        torch.save(answers(join(2, "two"), folder), folder / f"{rank} of 2")
        dist.destroy_process_group()
    world = join(3, "three")
    found = answers(world, folder)
    torch.save(found, folder / f"{rank} of 3")
    torch.save(go_on(world, folder / "saved by 2.pt", folder), folder / f"{rank} goes on")
    try:
        die_in_search(world)
    except RuntimeError as error:
        (folder / f"{rank} failed").write_text(str(error))
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def ended(folder: Path) -> Iterator[list[int | None]]:
    """How each process ended; None for one that hangs."""
    context = start_processes(of_process, (folder,), 3, join=False, start_method="spawn")
    for process in context.processes:
        process.join(4 * LIMIT.total_seconds())
    yield [process.exitcode for process in context.processes]
    for process in context.processes:
        process.kill()


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    return answers(World(), folder)


@pytest.fixture(scope="module", params=[2, 3])
def several(
    request: pytest.FixtureRequest, folder: Path, ended: list[int | None]
) -> list[dict[str, Any]]:
    names = [f"{rank} of {request.param}" for rank in range(request.param)]
    return [torch.load(folder / name, weights_only=False) for name in names]


def assert_same(one: SearchResult, other: SearchResult) -> None:
    assert one.recall == other.recall
    for a, b in zip(one[:3], other[:3], strict=True):
        assert torch.equal(a, b)


def figures(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name != "search_seconds"}


def test_every_process_keeps_a_part_and_none_all(several: list[dict[str, Any]]) -> None:
    kept = [found["kept"] for found in several]
    assert sum(kept) == IMAGES
    assert max(kept) - min(kept) <= 1


def test_every_process_knows_which_images_were_seen(several: list[dict[str, Any]]) -> None:
    for found in several:
        assert found["seen"].nonzero()[:, 0].tolist() == SEEN.tolist()


@pytest.mark.parametrize(
    "name", ["all", "some", "one", "none", "disk", "ties", "alike", "two images", "wide"]
)
def test_exact_search_finds_bit_for_bit_what_one_process_finds(
    name: str, alone: dict[str, Any], several: list[dict[str, Any]]
) -> None:
    for found in several:
        assert_same(found[name], alone[name])


def test_a_bank_on_disk_is_the_bank_in_memory_and_leaves_no_file(
    several: list[dict[str, Any]], folder: Path
) -> None:
    for found in several:
        assert_same(found["disk"], found["all"])
    assert not list(folder.rglob(".bank-*"))


def test_of_equal_features_the_lowest_numbers_are_found(several: list[dict[str, Any]]) -> None:
    for image, neighbors in enumerate(several[0]["alike"].neighbors.tolist()):
        assert neighbors == [other for other in range(8) if other != image][:7]


@pytest.mark.parametrize("name", ["near", "near few", "near many"])
def test_approximate_search_answers_the_same_everywhere_with_the_recall_that_it_says(
    name: str, alone: dict[str, Any], several: list[dict[str, Any]]
) -> None:
    for found in several:
        assert_same(found[name], several[0][name])
    found = several[0][name]
    assert torch.equal(found.rows, alone[name].rows)
    assert not (found.neighbors == found.rows[:, None]).any()
    assert np.isin(found.neighbors, SEEN).all()
    assert all(len(set(row)) == len(row) for row in found.neighbors.tolist())
    assert (found.similarity.diff(dim=1) <= 0).all()
    assert found.recall >= 0.95
    if name == "near":  # by counting, for all are in the sample
        truth = alone["all"].neighbors.tolist()
        hits = sum(len({*a} & {*b}) for a, b in zip(truth, found.neighbors.tolist(), strict=True))
        assert found.recall == pytest.approx(hits / found.neighbors.numel(), abs=1e-6)
    if name == "near many":  # all others, which every search must find in the end
        assert found.recall == 1
        assert torch.allclose(found.similarity, alone[name].similarity, rtol=0, atol=1e-6)


def test_the_table_and_the_figures_are_those_of_one_process(
    alone: dict[str, Any], several: list[dict[str, Any]]
) -> None:
    for found in several:
        assert np.array_equal(found["table exact"], alone["table exact"])
        assert np.array_equal(found["table approximate"], several[0]["table approximate"])
        for epoch in range(2):
            name = f"figures exact {epoch}"
            assert figures(found[name]) == figures(alone[name])
            for search in SEARCHES:  # the time too
                name = f"figures {search} {epoch}"
                assert found[name] == several[0][name]


def test_what_is_saved_does_not_depend_on_the_number_of_processes(
    alone: dict[str, Any], several: list[dict[str, Any]], folder: Path
) -> None:
    assert alone["names"] == several[0]["names"] == ["features", "seen"]
    assert all(found["names"] == [] for found in several[1:])
    expected = torch.load(folder / "saved by 1.pt")
    saved = torch.load(folder / f"saved by {len(several)}.pt")
    assert expected["features"][SEEN].any()
    for name, value in expected.items():
        assert value.dtype == saved[name].dtype
        assert torch.equal(value, saved[name])


def test_what_two_processes_saved_goes_on_with_three_or_one(
    alone: dict[str, Any], ended: list[int | None], folder: Path
) -> None:
    expected = go_on(World(), folder / "saved by 1.pt", folder)
    assert not torch.equal(expected.neighbors[:9], alone["all"].neighbors[:9, :4])
    assert_same(go_on(World(), folder / "saved by 2.pt", folder), expected)
    for rank in range(3):
        found = torch.load(folder / f"{rank} goes on", weights_only=False)
        assert_same(found, expected)


def test_where_a_process_dies_in_the_search_the_others_end_with_an_error(
    ended: list[int | None], folder: Path
) -> None:
    assert None not in ended  # none hangs
    assert ended[2] == DIED
    for rank in range(2):
        assert "gloo" in (folder / f"{rank} failed").read_text(), ended
