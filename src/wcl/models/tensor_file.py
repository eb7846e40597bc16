"""Files of tensors by other programs: safetensors, and what `torch.save` writes."""

import io
import pickle
import re
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from wcl.system.errors import InputError
from wcl.system.paths import one_line

# Where training programs keep the weights among other things, the preferred ones first.
_ENTRIES = ("state_dict_ema", "model_ema", "state_dict", "model")
_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")  # of DDP and of torch.compile


def parse_tensors(content: bytes, file: Path) -> dict[str, Tensor]:
    """Return the tensors in the content of a file, by name. No code in the file is run.

    Raises:
        InputError: it is damaged, holds no tensors, or could not be read without running code.
    """
    # A safetensors file is the length of the header in eight bytes and the header, which is JSON.
    if file.suffix == ".safetensors" or content[8:9] == b"{":
        try:
            return safetensors.torch.load(content)
        except (SafetensorError, KeyError, ValueError) as error:
            raise InputError(
                f"{file}: a damaged or truncated safetensors file ({_reason(error)}); get it again"
            ) from error
    found = _unpickled(content, file)
    for entry in _ENTRIES:
        if isinstance(found, dict) and isinstance(found.get(entry), dict):
            found = found[entry]
            break
    entries = found.items() if isinstance(found, dict) else ()
    tensors = {
        _WRAPPERS.sub("", name): value
        for name, value in entries
        if isinstance(name, str) and isinstance(value, Tensor)
    }
    if not tensors:
        raise InputError(f"{file}: holds no weights, which are tensors by their names")
    return tensors


def _unpickled(content: bytes, file: Path) -> Any:
    try:
        # timm's training checkpoints hold their command line as a Namespace, which is harmless.
        with torch.serialization.safe_globals([Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that it then refuses
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch advises to open the file nevertheless, which is not for everybody.
        found = re.search(r"GLOBAL (\S+)", str(error))
        objects = f" ({one_line(found[1])})" if found else ""
        raise InputError(
            f"{file}: damaged, or holds more than tensors{objects}, and opening it could run code; "
            "give a file of tensors only, such as .safetensors"
        ) from error
    except Exception as error:  # torch fails in many ways
        raise InputError(
            f"{file}: damaged, truncated or not a file of weights ({_reason(error)}); give a "
            ".safetensors or .pth file"
        ) from error


def _reason(error: Exception) -> str:
    return one_line((str(error).splitlines() or [type(error).__name__])[0])
