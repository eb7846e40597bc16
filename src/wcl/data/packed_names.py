"""Many names in little memory."""

from collections.abc import Iterator, Sequence
from os import fsdecode
from typing import overload

import numpy as np

_AT_A_TIME = 10_000


class PackedNames(Sequence[str]):
    """Names in one block of bytes, made into strings when they are asked for.

    A million strings of their own would be 100 MB, and that again in every process that decodes
    photos: counting the references to a string writes to the memory it shares.

    Args:
        block: the names as the file system has them, each ended by a zero byte.
    """

    def __init__(self, block: bytes) -> None:
        self._block = block
        ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 0)
        self._starts = np.concatenate([[0], ends + 1])

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return fsdecode(self._block[self._starts[index] : self._starts[index + 1] - 1])

    def __iter__(self) -> Iterator[str]:
        bounds = self._starts
        for first in range(0, len(self), _AT_A_TIME):
            last = min(first + _AT_A_TIME, len(self))
            part = self._block[bounds[first] : bounds[last] - 1]
            yield from fsdecode(part).split("\0")
