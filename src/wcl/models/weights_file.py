"""Safetensors files: read by their bytes, since the library opens no path that is not UTF-8."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from wcl.system.files import atomic_write

_LONGEST_HEADER = 10**8  # bytes, as in the library


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a file.

    Raises:
        OSError, SafetensorError: it cannot be read, or is not such a file.
    """
    return read_all(path)[0]


def read_all(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a file and its metadata, from one reading: a run may replace it meanwhile.

    Raises:
        OSError, SafetensorError: it cannot be read, or is not such a file.
    """
    content = path.read_bytes()
    weights: dict[str, Tensor] = load(content)
    length = int.from_bytes(content[:8], "little")
    return weights, json.loads(content[8 : 8 + length]).get("__metadata__") or {}


def read_header(path: Path) -> dict[str, Any]:
    """What a file says of its tensors, without reading them.

    Raises:
        OSError, SafetensorError: it cannot be read, is not such a file, or is cut short.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST_HEADER:
            raise SafetensorError("the header is too long")
        text = file.read(length)
    try:
        header = json.loads(text)
        ends = [values["data_offsets"][1] for name, values in header.items() if name[:2] != "__"]
        if path.stat().st_size != 8 + length + max(ends, default=0):
            raise ValueError("not of the length that it says")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise SafetensorError(str(error)) from error
    found: dict[str, Any] = header
    return found


def write_weights(
    path: Path, weights: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors whole or not at all.

    Args:
        path: the file.
        weights: the tensors by name.
        metadata: one entry at most: the order of several would differ from file to file.
    """
    contiguous = {name: tensor.contiguous() for name, tensor in weights.items()}
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(save(contiguous, metadata))
