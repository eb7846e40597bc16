"""Processes of a run meet, and nobody of an earlier attempt is among them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from wcl.distributed.rendezvous import fresh_store

SIZE = 3
ENOUGH = timedelta(seconds=20)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'store'}"


def come(address: str, rank: int, timeout: timedelta = ENOUGH) -> Store:
    """One process's way to the meeting."""
    store: Store = next(rendezvous(address, rank, SIZE))[0]
    return fresh_store(store, rank, SIZE, timeout)


def meet(address: str, ranks: list[int]) -> dict[int, Store]:
    """The places of all ranks, which come in that order."""
    with ThreadPoolExecutor(SIZE) as pool:
        coming = {rank: pool.submit(come, address, rank) for rank in ranks}
        return {rank: place.result() for rank, place in coming.items()}


@pytest.mark.parametrize("ranks", [[0, 1, 2], [2, 1, 0]])
def test_all_meet_in_one_place_that_no_earlier_attempt_knew(address: str, ranks: list[int]) -> None:
    for attempt in range(3):
        places = meet(address, ranks)
        assert not any(place.check(["address"]) for place in places.values())
        places[2].set("address", str(attempt))
        assert {place.get("address") for place in places.values()} == {str(attempt).encode()}


def test_questions_of_the_dead_do_not_stand_for_the_living(address: str) -> None:
    """Two asked and died before the first came: their questions are no reason not to wait."""
    soon = timedelta(seconds=0.2)
    for rank in (1, 2):
        with pytest.raises(RuntimeError, match="Timeout"):
            come(address, rank, soon)
    with pytest.raises(DistStoreError, match="not all processes came"):
        come(address, 0, soon)
    assert len(meet(address, [0, 1, 2])) == SIZE
