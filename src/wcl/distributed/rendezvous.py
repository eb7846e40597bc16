"""Where the processes of a run meet, whatever an earlier attempt left there.

torchrun keeps one store for all its restarts, with the addresses of processes that are dead by
now in it (pytorch issue 135712). Who reads those first waits for nobody: of six restarts after a
kill, three hung or failed. Its count of restarts cannot tell attempts apart either, since
each node has its own. So every attempt agrees on a name that was never there before.
"""

import secrets
import time
from datetime import timedelta

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store

_SECONDS_BETWEEN_LOOKS = 0.02


def fresh_store(store: Store, rank: int, size: int, timeout: timedelta) -> Store:
    """A part of the store that only the processes of this attempt know.

    Everyone but the first asks under a random name of its own, which no old answer can have; the
    first answers whatever it finds asked, old questions too, until all have thanked it.

    Raises:
        DistStoreError: not all came within that time.
    """
    shared = PrefixStore("wcl", store)
    shared.set_timeout(timeout)
    if rank > 0:
        name = secrets.token_hex(8)
        shared.set(f"asks/{rank}", name)
        place = shared.get(f"answer/{name}").decode()
        shared.add(f"thanks/{place}", 1)
        return PrefixStore(place, shared)

    place = secrets.token_hex(8)
    until = time.monotonic() + timeout.total_seconds()
    while shared.add(f"thanks/{place}", 0) < size - 1:
        for other in range(1, size):
            if shared.check([f"asks/{other}"]):
                shared.set(f"answer/{shared.get(f'asks/{other}').decode()}", place)
        if time.monotonic() > until:
            raise DistStoreError(f"Timed out after {timeout}: not all processes came")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return PrefixStore(place, shared)
