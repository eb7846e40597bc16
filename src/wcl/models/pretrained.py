"""Pretrained weights of a backbone: from timm, a file, a run, an export or a hub folder.

`ModelConfig.weights` says where they are, and `ModelConfig.backbone` which network they belong to.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from torch import Tensor, nn

from wcl.config import ModelConfig
from wcl.models.description import Description
from wcl.models.encoder import described_in, load, weights_sha256
from wcl.models.fitting import best_fit
from wcl.models.tensor_file import parse_tensors
from wcl.models.timm_weights import download, pretrained_cfg
from wcl.models.weights_file import read_header
from wcl.system.errors import InputError
from wcl.system.paths import expanded, one_line
from wcl.system.progress import log
from wcl.system.run_folder import weights_of

_MAX_SIZE = 4096


@dataclass(frozen=True)
class InputFormat:
    """The images that weights were trained with."""

    channels: int = 3
    image_size: int = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)


class _Found(NamedTuple):
    """A file of weights, and the description that comes with it."""

    path: Path
    description: Description | None
    """Of an encoder that wcl wrote."""
    hub_config: dict[str, Any]
    """The config.json of a hub folder."""


def input_format(model: ModelConfig) -> InputFormat:
    """Return how images must be prepared for the weights, without reading their tensors.

    Raises:
        InputError: there are no such weights.
    """
    pretrained: dict[str, Any] = {}
    if model.weights != "timm":
        found = _find(model.weights)
        if (stated := found.description) is not None:
            return InputFormat(stated.channels, stated.image_size, stated.mean, stated.std)
        pretrained = found.hub_config.get("pretrained_cfg") or {}
    if not pretrained and (own := pretrained_cfg(model.backbone)):
        pretrained = own.to_dict()
    try:
        channels, _, size = pretrained.get("input_size", (3, 0, InputFormat.image_size))
        mean, std = (
            tuple(map(float, pretrained.get(name, getattr(InputFormat, name))))
            for name in ("mean", "std")
        )
        if not (len(mean) == len(std) == channels and min(std) > 0 and 0 < size <= _MAX_SIZE):
            raise ValueError
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{model.weights}: its config.json is damaged; get it again") from error
    return InputFormat(int(channels), int(size), mean, std)


def is_encoder(weights: str) -> bool:
    """Return whether wcl wrote the weights, so that they describe the network, too.

    Raises:
        InputError: there are no such weights.
    """
    return _find(weights).description is not None


def input_settings(model: ModelConfig) -> dict[str, Any]:
    """Return the settings of a run that follow its weights, by their dotted names."""
    with naming_setting():
        found = input_format(model)
    return {
        "image_size": found.image_size,
        "augment.mean": list(found.mean),
        "augment.std": list(found.std),
    }


@contextmanager
def naming_setting() -> Iterator[None]:
    """Make errors name `--model.weights`, unless they name another setting."""
    try:
        yield
    except InputError as error:
        if str(error).startswith("--"):
            raise
        raise InputError(f"--model.weights: {error}") from error


def origin(model: ModelConfig) -> str:
    """Return the name of the weights, without a path on this machine."""
    if model.weights != "timm":
        return expanded(model.weights).absolute().name
    tag = getattr(pretrained_cfg(model.backbone), "tag", None)
    architecture = model.backbone.partition(".")[0]
    return f"timm:{architecture}.{tag}" if tag else f"timm:{architecture}"


def load_weights(
    backbone: nn.Module, model: ModelConfig, channels: int, image_size: int, remedy: str = ""
) -> str:
    """Load the weights that the settings name into a new backbone, completely or not at all.

    With `model.weights_partial`, those that fit are loaded.

    Args:
        backbone: the network.
        model: its settings.
        channels, image_size: of its images.
        remedy: what else to do about weights that do not fit, for the message.

    Returns:
        The SHA-256 of the file, or of the tensors if timm downloaded them.

    Raises:
        InputError: the weights do not exist, cannot be read or do not fit.
    """
    if model.weights == "timm":
        tensors = download(model.backbone, channels, image_size)
        where, sha256 = f"the weights of {model.backbone}", weights_sha256(tensors)
    else:
        found = _find(model.weights)
        if not model.weights_partial:
            _check_architecture(found, model)
        tensors, sha256 = _read(found)
        where = str(found.path)
    if model.weights_sha256 not in ("", sha256):
        raise InputError(
            f"{where}: not the weights that were asked for: their SHA-256 is {sha256}, not "
            f"{model.weights_sha256}"
        )
    fit = best_fit(tensors, backbone, model.backbone)
    if fit.problems and (fit.is_empty or not model.weights_partial):
        raise InputError(
            f"{where}: does not fit {model.backbone} (tensors: {fit}); give weights of this "
            f"model{remedy}"
        )
    if fit.problems:
        log(f"{where}: loaded {len(fit.tensors)} tensors; the others are {fit}")
    own = backbone.state_dict()
    # In the network's own precision, since what is finite in another may not be finite there.
    tensors = {name: tensor.to(own[name].dtype) for name, tensor in fit.tensors.items()}
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise InputError(f"{where}: the weights are not finite (NaN or infinity); give others")
    for name, tensor in tensors.items():
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise InputError(
                f"{where}: {name} is a variance, but negative in places; get the weights again"
            )
    backbone.load_state_dict(own | tensors)
    return sha256


def _find(weights: str) -> _Found:
    """Return the file of weights that a path leads to, with what is known about it."""
    place = expanded(weights)
    if not weights or not place.exists():
        raise InputError(
            f"{one_line(weights)}: no such weights; give timm for those of the backbone's name, a "
            ".safetensors or .pth file, a run or a hub folder"
        )
    path = weights_of(weights)
    description = None
    if path.suffix == ".safetensors":
        try:
            description = described_in(read_header(path).get("__metadata__") or {}, path)
        except SafetensorError as error:
            raise InputError(
                f"{path}: a damaged or truncated safetensors file ({error}); get it again"
            ) from error
    return _Found(path, description, _hub_config(place))


def _hub_config(place: Path) -> dict[str, Any]:
    """Return the config.json of a hub folder; nothing for other files and folders."""
    file = place / "config.json"
    if not file.is_file():
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: not JSON ({error})") from error
    return values if isinstance(values, dict) else {}


def _check_architecture(found: _Found, model: ModelConfig) -> None:
    """Raise InputError if the weights are known to belong to another network.

    Their shapes do not always tell: a stem can differ by its stride alone.
    """
    stated, stem = found.hub_config.get("architecture", ""), "native"
    if found.description is not None:
        stated, stem = found.description.model.backbone, found.description.model.stem
    names = [str(name).partition(".")[0] for name in (stated, model.backbone)]  # without tags
    if stated and (names[0], stem) != (names[1], model.stem):
        kinds = [
            f"{name} with the stem {stem}" if stem != "native" else f"{name}"
            for name, stem in ((stated, stem), (model.backbone, model.stem))
        ]
        raise InputError(
            f"{found.path}: weights of {one_line(kinds[0])}, not of {kinds[1]}; give weights of "
            "this model, or choose that one"
        )


def _read(found: _Found) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a backbone in a file, and the SHA-256 of the file."""
    content = found.path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if found.description is not None:
        return load(found.path).backbone.state_dict(), sha256
    return parse_tensors(content, found.path), sha256
