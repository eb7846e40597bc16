"""Rendezvous of the processes of a run, unaffected by what an earlier attempt left behind.

torchrun keeps one store for all its restarts, which still holds the addresses of dead processes
(pytorch issue 135712). A process that reads those waits forever: of six restarts after a kill,
three hung or failed. The restart count cannot tell attempts apart, since each node has its own. So
every attempt agrees on a new random name.
"""

import secrets
import time
from datetime import timedelta

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store

_POLL_INTERVAL = 0.02  # seconds


def fresh_store(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """Return a part of the store that only the processes of this attempt use.

    Rank 0 chooses its random name. Every other rank requests it under a random name of its own,
    to which no earlier attempt can have replied. Rank 0 replies to all requests, old ones too,
    until all processes of this attempt have acknowledged.

    Raises:
        DistStoreError: not all processes joined within the timeout.
    """
    shared = PrefixStore("wcl", store)
    shared.set_timeout(timeout)
    if rank > 0:
        request = secrets.token_hex(8)
        shared.set(f"request/{rank}", request)
        name = shared.get(f"reply/{request}").decode()
        shared.add(f"acknowledged/{name}", 1)
        return PrefixStore(name, shared)

    name = secrets.token_hex(8)
    deadline = time.monotonic() + timeout.total_seconds()
    while shared.add(f"acknowledged/{name}", 0) < size - 1:
        for other in range(1, size):
            if shared.check([f"request/{other}"]):
                shared.set(f"reply/{shared.get(f'request/{other}').decode()}", name)
        if time.monotonic() > deadline:
            raise DistStoreError(f"Timed out after {timeout}: not all processes joined")
        time.sleep(_POLL_INTERVAL)
    return PrefixStore(name, shared)
