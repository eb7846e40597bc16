"""Safetensors files, read from bytes because the library cannot open paths that are not UTF-8."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from wcl.system.files import atomic_write

_MAX_HEADER = 10**8  # bytes, as in the library


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        OSError, SafetensorError: it cannot be read, or is not a safetensors file.
    """
    return read_with_metadata(path)[0]


def read_with_metadata(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file at once: a run may replace it at any time.

    Raises:
        OSError, SafetensorError: it cannot be read, or is not a safetensors file.
    """
    content = path.read_bytes()
    weights: dict[str, Tensor] = load(content)
    length = int.from_bytes(content[:8], "little")
    return weights, json.loads(content[8 : 8 + length]).get("__metadata__") or {}


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a file without its tensors.

    Raises:
        OSError, SafetensorError: it cannot be read, is not a safetensors file, or is truncated.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER:
            raise SafetensorError("the header is too long")
        text = file.read(length)
    try:
        header: dict[str, Any] = json.loads(text)
        ends = [values["data_offsets"][1] for name, values in header.items() if name[:2] != "__"]
        if path.stat().st_size != 8 + length + max(ends, default=0):
            raise ValueError("the file is truncated")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SafetensorError(str(error)) from error
    return header


def write_weights(
    path: Path, weights: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a file, atomically.

    Args:
        path: the file.
        weights: the tensors by name.
        metadata: at most one entry: the library does not keep the order of several.
    """
    contiguous = {name: tensor.contiguous() for name, tensor in weights.items()}
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(save(contiguous, metadata))
