"""Randomness as a pure function of (seed, epoch, image, view), never of who draws it or when.

A run therefore sees the same crops and colors on any number of processes and workers, and a
resumed run goes on as if it had never stopped: there is no generator state to carry.

The numbers are SplitMix64 outputs (Steele, Lea and Flood, 2014) of a key per image and view. The
same code runs on numpy arrays (drawing parameters) and on torch tensors (drawing pixels on the
device), since it uses operators alone; int64 with wrap-around stands in for uint64.
"""

import os
import zlib
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_A = TypeVar("_A", Integers, torch.Tensor)

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_UNIT = 2.0**-53


def _shifted(x: _A, by: int) -> _A:
    """Logical right shift: the sign's copies that int64 shifts in are masked off."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def mix(x: _A) -> _A:
    """SplitMix64's output function: a bijection of 64 bits without visible structure."""
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    return x ^ _shifted(x, 31)


def _absorb(key: Integers, word: int | Integers) -> Integers:
    return mix(key + _GOLDEN + np.asarray(word, dtype=np.int64) * -7723592293110705685)


def seed_of(*words: int | str) -> int:
    """A seed in [0, 2⁶³) for a torch.Generator, from a few numbers and names.

    >>> seed_of(0, "order", 3) == seed_of(0, "order", 3) != seed_of(0, "order", 4)
    True
    """
    return int(_fold(words)[0]) & (2**63 - 1)


def _fold(words: tuple[int | str, ...]) -> Integers:
    key = np.zeros(1, dtype=np.int64)
    for word in words:
        key = _absorb(key, zlib.crc32(os.fsencode(word)) if isinstance(word, str) else word)
    return key


@dataclass(frozen=True)
class Draws:
    """The random numbers of a batch: row i belongs to view `view[i]` of image `index[i]`.

    Each purpose ("crop", "flip", …) has a stream of its own, so that switching one augmentation
    on or off leaves the numbers of the others as they were.
    """

    seed: int
    epoch: int
    index: Integers
    view: Integers

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice) -> "Draws":
        return Draws(self.seed, self.epoch, self.index[rows], self.view[rows])

    def keys(self, purpose: str) -> Integers:
        """(N,) one key per row for this purpose."""
        return _absorb(_absorb(_fold((self.seed, self.epoch, purpose)), self.index), self.view)

    def uniform(self, purpose: str, count: int) -> Floats:
        """(N, count) numbers in [0, 1)."""
        counters = np.arange(1, count + 1, dtype=np.int64) * _GOLDEN
        bits = _shifted(mix(self.keys(purpose)[:, None] + counters), 11)
        return bits.astype(np.float64) * _UNIT

    def normal(self, purpose: str, count: int, device: torch.device) -> torch.Tensor:
        """(N, count) standard normal numbers, float32, drawn on the device (Box–Muller)."""
        keys = torch.from_numpy(self.keys(purpose)).to(device, non_blocking=True)
        pairs = (count + 1) // 2
        counters = torch.arange(1, pairs + 1, device=device) * _GOLDEN
        bits = mix(keys[:, None] + counters)
        # One word makes both uniforms: 32 bits each is finer than float32 can tell.
        radius = (-2 * torch.log((_shifted(bits, 32) + 1).float() * 2.0**-32)).sqrt()
        angle = (bits & 0xFFFFFFFF).float() * (2 * torch.pi * 2.0**-32)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


class RngState:
    """The state of torch's generators, which layers such as dropout draw from.

    Args:
        device: the one that the network is on, beside the host.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def state(self) -> dict[str, torch.Tensor]:
        """As it is now."""
        found = {"host": torch.get_rng_state()}
        if self._device.type == "cuda":
            found["cuda"] = torch.cuda.get_rng_state(self._device)
        return found

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from a state; one of another kind of device is left out."""
        torch.set_rng_state(state["host"])
        if "cuda" in state and self._device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self._device)


def between(u: Floats, low: float, high: float) -> Floats:
    """Uniform numbers of [0, 1) moved to [low, high)."""
    return low + (high - low) * u
