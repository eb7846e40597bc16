"""Counter-based randomness: a pure function of (seed, epoch, image, view).

A run therefore sees the same crops and colors on any number of processes and workers, and a
resumed run continues as if it had never stopped: there is no generator state to save.

The numbers are SplitMix64 outputs (Steele, Lea and Flood, 2014) of a key per image and view. The
same code runs on NumPy arrays (to draw parameters) and on torch tensors (to draw pixels on the
device), since it uses operators only; int64 with wrap-around replaces uint64.
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
    """Shift right logically: the copies of the sign bit that int64 shifts in are masked off."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def mix(x: _A) -> _A:
    """Apply SplitMix64's output function, a bijection of 64 bits without visible structure."""
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    return x ^ _shifted(x, 31)


def _absorb(key: Integers, word: int | Integers) -> Integers:
    return mix(key + _GOLDEN + np.asarray(word, dtype=np.int64) * -7723592293110705685)


def seed_of(*words: int | str) -> int:
    """Return a seed in [0, 2⁶³) for a torch.Generator, derived from numbers and names.

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

    Each purpose ("crop", "flip", …) has its own stream, so that switching one augmentation on or
    off does not change the numbers of the others.
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
        """Return (N,) one key per row for this purpose."""
        return _absorb(_absorb(_fold((self.seed, self.epoch, purpose)), self.index), self.view)

    def uniform(self, purpose: str, count: int) -> Floats:
        """Return (N, count) numbers in [0, 1)."""
        counters = np.arange(1, count + 1, dtype=np.int64) * _GOLDEN
        bits = _shifted(mix(self.keys(purpose)[:, None] + counters), 11)
        return bits.astype(np.float64) * _UNIT

    def normal(self, purpose: str, count: int, device: torch.device) -> torch.Tensor:
        """Return (N, count) standard normal numbers, float32, drawn on the device (Box–Muller)."""
        keys = torch.from_numpy(self.keys(purpose)).to(device, non_blocking=True)
        pairs = (count + 1) // 2
        counters = torch.arange(1, pairs + 1, device=device) * _GOLDEN
        bits = mix(keys[:, None] + counters)
        # One word gives both uniforms: 32 bits each exceed the precision of float32.
        radius = (-2 * torch.log((_shifted(bits, 32) + 1).float() * 2.0**-32)).sqrt()
        angle = (bits & 0xFFFFFFFF).float() * (2 * torch.pi * 2.0**-32)
        return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


def device_bits(
    seed: torch.Tensor, step: torch.Tensor, index: torch.Tensor, count: int
) -> torch.Tensor:
    """Return random integers in [0, 2⁶³), drawn on the device.

    Args:
        seed, step: scalars on the device, int64.
        index: (N,) the images.
        count: integers per image.

    Returns:
        (N, count) integers that depend on the seed, the step and the image alone.
    """
    keys = mix(mix(mix(seed) + (step + 1) * _GOLDEN) + (index + 1) * _GOLDEN)
    counters = torch.arange(1, count + 1, device=index.device) * _GOLDEN
    return mix(keys[:, None] + counters) & (2**63 - 1)


class RngState:
    """The state of torch's generators, which layers such as dropout use.

    Args:
        device: the device of the network.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def state(self) -> dict[str, torch.Tensor]:
        """Return the current state."""
        states = {"host": torch.get_rng_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        return states

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Restore a state, ignoring that of a device that is not used."""
        torch.set_rng_state(state["host"])
        if "cuda" in state and self._device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self._device)


def between(u: Floats, low: float, high: float) -> Floats:
    """Map uniform numbers in [0, 1) to [low, high)."""
    return low + (high - low) * u
