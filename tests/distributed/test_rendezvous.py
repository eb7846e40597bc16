"""Processes of a run find each other, and none of an earlier attempt."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from wcl.distributed.rendezvous import fresh_store

SIZE = 3
TIMEOUT = timedelta(seconds=20)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'store'}"


def join(address: str, rank: int, timeout: timedelta = TIMEOUT) -> Store:
    """Return the store of one process."""
    store: Store = next(rendezvous(address, rank, SIZE))[0]
    return fresh_store(store, rank, SIZE, timeout)


def meet(address: str, ranks: list[int]) -> dict[int, Store]:
    """Return the stores of all ranks, which join in that order."""
    with ThreadPoolExecutor(SIZE) as pool:
        joining = {rank: pool.submit(join, address, rank) for rank in ranks}
        return {rank: store.result() for rank, store in joining.items()}


@pytest.mark.parametrize("ranks", [[0, 1, 2], [2, 1, 0]])
def test_all_meet_in_one_store_that_no_earlier_attempt_used(address: str, ranks: list[int]) -> None:
    for attempt in range(3):
        stores = meet(address, ranks)
        assert not any(store.check(["address"]) for store in stores.values())
        stores[2].set("address", str(attempt))
        assert {store.get("address") for store in stores.values()} == {str(attempt).encode()}


def test_requests_of_dead_processes_do_not_count(address: str) -> None:
    """Two requested and died before rank 0 joined: their requests do not count."""
    soon = timedelta(seconds=0.2)
    for rank in (1, 2):
        with pytest.raises(RuntimeError, match="Timeout"):
            join(address, rank, soon)
    with pytest.raises(DistStoreError, match="not all processes joined"):
        join(address, 0, soon)
    assert len(meet(address, [0, 1, 2])) == SIZE
