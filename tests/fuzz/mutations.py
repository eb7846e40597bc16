"""Damage to files: every case is a function of (seed, number), so that one can be had again."""

import numpy as np

Random = np.random.Generator

_NUMBERS = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


def damaged(content: bytes, words: list[bytes], random: Random) -> bytes:
    """The content after one or more kinds of damage; `words` mean something in it."""
    whole = content
    while content == whole or random.random() < 0.4:
        kind = _KINDS[int(random.integers(len(_KINDS)))]
        content = kind(content, random)
        if words and random.random() < 0.3:
            at = _place(content, random)
            content = content[:at] + words[int(random.integers(len(words)))] + content[at:]
    return content


def _place(content: bytes, random: Random) -> int:
    """Anywhere, but half of the time near the beginning or the end, where headers are."""
    length = len(content)
    where = random.random()
    if where < 0.35:
        return int(random.integers(min(length, 200) + 1))
    if where < 0.5:
        return length - int(random.integers(min(length, 200) + 1))
    return int(random.integers(length + 1))


def _cut_short(content: bytes, random: Random) -> bytes:
    return content[: _place(content, random)]


def _flip_bits(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 9)) if changed else 0):
        at = min(_place(content, random), len(changed) - 1)
        changed[at] ^= 1 << int(random.integers(8))
    return bytes(changed)


def _overwrite(content: bytes, random: Random) -> bytes:
    at, count = _place(content, random), int(random.integers(1, 33))
    return content[:at] + random.bytes(count) + content[at + count :]


def _number(content: bytes, random: Random) -> bytes:
    """A size or an offset that is too small, too large or of the wrong sign."""
    at, width = _place(content, random), int(random.choice([1, 2, 4, 8]))
    number = _NUMBERS[int(random.integers(len(_NUMBERS)))] % 2 ** (8 * width)
    written: bytes = number.to_bytes(width, "little" if random.random() < 0.5 else "big")
    return content[:at] + written + content[at + width :]


def _leave_out(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + content[at + int(random.integers(1, 100)) :]


def _repeat(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    part = content[at : at + int(random.integers(1, 100))]
    return content[:at] + part * int(random.integers(2, 20)) + content[at:]


def _insert(content: bytes, random: Random) -> bytes:
    at = _place(content, random)
    return content[:at] + random.bytes(int(random.integers(1, 50))) + content[at:]


_KINDS = [_cut_short, _flip_bits, _overwrite, _number, _leave_out, _repeat, _insert]
