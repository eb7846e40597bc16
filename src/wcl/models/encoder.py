"""The network: a backbone and the two projection heads; it saves and describes itself."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import torch
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn

from wcl import __version__
from wcl.config import ModelConfig
from wcl.data.decode import UnreadableImage, center_crop, open_image
from wcl.models.backbones import build_backbone
from wcl.models.weights_file import read_all, write_weights
from wcl.system.errors import InputError
from wcl.system.paths import expanded
from wcl.system.run_folder import weights_of

# What the header of a safetensors file calls the description of a whole encoder, and of a backbone
# alone, whose weights are then named as timm names them.
_WHOLE, _BACKBONE = "wcl-encoder-1", "wcl-backbone-1"

# What the numbers of a description may be: what a run can have been made with, and no more.
_NUMBERS = {
    "channels": (1, 64),
    "image_size": (1, 4096),
    "epoch": (0, 2**31),
    "feature_dim": (0, 2**20),
}
_MODEL_NUMBERS = {"head_layers": (2, 3), "head_hidden_dim": (1, 2**20), "head_out_dim": (1, 2**20)}
_TEXTS = ("method", "data", "version", "sha256")
_HEADS: tuple[list[str], ...] = ([], ["g"], ["phi"], ["g", "phi"])
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_FAR = 1e3  # colors are between 0 and 1, and neither their mean nor their spread is far from that


class Embeddings(NamedTuple):
    """What the network makes of N images; the projection by an absent head is None."""

    h: Tensor
    """(N, features) pooled output of the backbone."""
    z: Tensor | None
    """(N, D) projection by the instance head g."""
    v: Tensor | None
    """(N, D) projection by the weak-label head φ."""


@dataclass(frozen=True)
class Description:
    """All that is needed to rebuild an encoder and to feed it, and where it comes from."""

    model: ModelConfig
    heads: tuple[str, ...]
    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    method: str = "none"
    epoch: int = 0
    data: str = ""
    version: str = __version__
    scale: tuple[float, float] = (0.08, 1.0)
    """The crops that it was trained on, as `AugmentConfig` has them; classifiers get the same."""
    flip: float = 0.5
    sha256: str = field(default="", compare=False)
    """Of the backbone's weights in the file (`weights_sha256`); empty if it is of no file."""
    feature_dim: int = field(default=0, compare=False)
    """Dimensions of the features that the file gives; 0 if it is of no file."""


class Embedder(ABC):
    """Whatever turns images into features: an encoder, or a file that one was exported to."""

    description: Description
    feature_dim: int
    """Dimensions of the features."""

    @abstractmethod
    def _features(self, pixels: Tensor) -> Tensor:
        """(N, C, size, size) bytes → (N, features) on the host."""

    def __repr__(self) -> str:
        about = self.description
        network = f"{about.model.backbone}, {self.feature_dim} features, size {about.image_size}"
        return f"{type(self).__name__}({network}, {about.method}, epoch {about.epoch})"

    def embed(
        self,
        images: Tensor | str | Path | Image.Image | Sequence[str | Path | Image.Image],
        batch_size: int = 256,
    ) -> Tensor:
        """Features of images: a file or PIL image, several, or bytes (N, C, size, size).

        Args:
            images: what to embed. Files and PIL images are resized and cropped at the center.
            batch: images per forward pass.

        Returns:
            (N, features) on the host.

        Raises:
            TypeError, ValueError: these are not images.
            InputError: a file cannot be read.
        """
        if isinstance(images, str | Path | Image.Image):
            images = [images]
        if isinstance(images, dict) or not hasattr(images, "__getitem__"):
            raise self._wrong_type(type(images).__name__)
        parts = []
        for start in range(0, len(images), batch_size):
            chunk = images[start : start + batch_size]
            pixels = chunk if isinstance(chunk, Tensor) else self._pixels(chunk)
            self._check(pixels)
            parts.append(self._features(pixels))
        return torch.cat(parts) if parts else torch.empty(0, self.feature_dim)

    def _check(self, pixels: Tensor) -> None:
        if pixels.dtype != torch.uint8:
            raise ValueError(f"images are bytes, 0 to 255; these are {pixels.dtype}")
        if pixels.ndim != 4 or pixels.shape[1] != self.description.channels:
            wanted = f"(N, {self.description.channels}, height, width)"
            raise ValueError(f"images are {wanted}; these are {tuple(pixels.shape)}")

    def _wrong_type(self, given: str) -> TypeError:
        return TypeError(
            "embed takes a file or PIL image, a list of these, or one tensor of bytes "
            f"(N, {self.description.channels}, height, width); got {given}"
        )

    def _pixels(self, images: Sequence[str | Path | Image.Image]) -> Tensor:
        size, channels = self.description.image_size, self.description.channels
        pixels = []
        for image in images:
            if not isinstance(image, str | Path | Image.Image):
                raise self._wrong_type(f"{type(images).__name__} with {type(image).__name__} in it")
            try:
                opened = image if isinstance(image, Image.Image) else open_image(Path(image))
                pixels.append(center_crop(opened, size, channels))
            except UnreadableImage as error:
                folder = isinstance(image, str | Path) and Path(image).is_dir()
                why = "a folder; `wcl embed` takes all images of one" if folder else error
                raise InputError(f"{image}: {why}") from error
        return torch.stack(pixels)


class Encoder(nn.Module, Embedder):
    """A backbone with the projection heads g and φ, or one of them, or none."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description = description
        self.home: Path | None = None
        """Folder of the run that it was loaded from, where what is computed with it may be kept."""
        model = description.model
        self.backbone = build_backbone(model, description.channels, description.image_size)
        # Models that widen their features behind the pooling say so as head_hidden_size.
        backbone: Any = self.backbone
        self.feature_dim = int(getattr(backbone, "head_hidden_size", None) or backbone.num_features)
        self.g = self._head() if "g" in description.heads else None
        self.phi = self._head() if "phi" in description.heads else None

    __repr__ = Embedder.__repr__  # all modules, which nn.Module's shows, fill screens

    def _head(self) -> nn.Sequential:
        model = self.description.model
        return projection_head(
            self.feature_dim, model.head_hidden_dim, model.head_out_dim, model.head_layers
        )

    def forward(self, images: Tensor) -> Embeddings:
        """(N, C, size, size) normalized images → features and projections."""
        h = self.backbone(images)
        return Embeddings(
            h,
            self.g(h) if self.g is not None else None,
            self.phi(h) if self.phi is not None else None,
        )

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def normalize(self, pixels: Tensor) -> Tensor:
        """(N, C, H, W) bytes → what the backbone expects, on its device."""
        self._check(pixels)
        dtype = next(self.parameters()).dtype
        mean, std = (
            torch.tensor(values, device=self.device).to(dtype)[:, None, None]
            for values in (self.description.mean, self.description.std)
        )
        return (pixels.to(self.device, non_blocking=True).to(dtype) / 255 - mean) / std

    @torch.no_grad()
    def _features(self, pixels: Tensor) -> Tensor:
        training = self.training
        self.eval()
        try:
            features: Tensor = self.backbone(self.normalize(pixels))
            return features.float().cpu()
        finally:
            self.train(training)

    def save(self, path: Path) -> None:
        """Write weights and description as one safetensors file, whole or not at all."""
        self._write(path, self.state_dict(), _WHOLE, self.described())

    def save_backbone(self, path: Path) -> None:
        """Write the backbone alone, its weights named as timm names them, and the description."""
        self._write(path, self.backbone.state_dict(), _BACKBONE, self.described(heads=()))

    def described(self, **changes: Any) -> dict[str, Any]:
        """The description as plain values, with the hash of the weights as they are now."""
        sha256 = weights_sha256(self.backbone.state_dict())
        stated = replace(self.description, sha256=sha256, feature_dim=self.feature_dim, **changes)
        return asdict(stated)

    def _write(
        self, path: Path, weights: dict[str, Tensor], key: str, described: dict[str, Any]
    ) -> None:
        sealed = described | {"seal": _seal(described, weights)}
        write_weights(path, weights, {key: json.dumps(sealed)})


def _seal(described: dict[str, Any], weights: dict[str, Tensor]) -> str:
    """SHA-256 of all that a file has: of its description, and of its weights."""
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha256(f"{text} {weights_sha256(weights)}".encode()).hexdigest()


def load(path: str | Path, device: str = "cpu") -> Encoder:
    """Open an encoder by its weights: a run's folder, its `encoder.safetensors`, or an export.

    The exports are those of `wcl export` that hold weights: to timm, to safetensors, or to a
    folder for the hub. `wcl.load` opens the others too.

    Raises:
        InputError: there is no encoder there, or the file is not one.
    """
    place, file = expanded(path), weights_of(path)
    try:
        weights, metadata = read_all(file)
    except (SafetensorError, KeyError) as error:  # KeyError: numbers of a kind unknown to torch
        if file.suffix in (".onnx", ".pt"):
            raise InputError(
                f"{file}: the weights are needed, which {file.suffix} files do not give; give the "
                "run that it was exported from"
            ) from error
        raise InputError(f"{file}: not a safetensors file ({error})") from error
    whole = _WHOLE in metadata
    if not whole and _BACKBONE not in metadata:
        raise InputError(f"{file}: a safetensors file, but not an encoder that wcl wrote")
    description = described_by(metadata[_WHOLE if whole else _BACKBONE], file)
    try:
        _must_fit(weights, description, whole)
        encoder = Encoder(description)
        (encoder if whole else encoder.backbone).load_state_dict(weights)
    except Exception as error:  # timm's networks refuse settings in many ways
        raise InputError(f"{file}: damaged, or of another version of wcl") from error
    stated = json.loads(metadata[_WHOLE if whole else _BACKBONE])
    if stated.pop("seal", "") != _seal(stated, weights):
        raise InputError(f"{file}: damaged, or of another version of wcl")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise InputError(
            f"{file}: its weights are not finite (NaN or infinity); train it anew, with a smaller "
            "--optim.lr"
        )
    is_run = place.is_dir() and not (place / "config.json").exists()  # which the hub's layout has
    encoder.home = place if is_run else None
    return encoder.to(device).eval()


def _must_fit(weights: dict[str, Tensor], description: Description, whole: bool) -> None:
    """Raise ValueError if these are not the weights of the network that is described.

    That is found without memory for the network: a small file may describe an enormous one.
    """
    with torch.device("meta"):
        outline = Encoder(description)
    wanted = (outline if whole else outline.backbone).state_dict()
    kinds, wanted_kinds = (
        {name: (tensor.shape, _kind(tensor)) for name, tensor in tensors.items()}
        for tensors in (weights, wanted)
    )
    if kinds != wanted_kinds:
        raise ValueError("weights of another network")


def _kind(tensor: Tensor) -> torch.dtype:
    """The kind of its numbers; those of any precision that runs have are one."""
    return torch.float32 if tensor.dtype in _FLOATS else tensor.dtype


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """SHA-256 of weights: of every tensor's name and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def described_by(text: str, file: Path) -> Description:
    """The description that a file carries, as JSON; what it does not know is left out.

    Raises:
        InputError: it is not one, or of an encoder that cannot be.
    """
    try:
        values = json.loads(text)
        wrong = _wrong(values)
        known = {field.name for field in fields(Description)}
        values = {name: value for name, value in values.items() if name in known}
        values["model"] = ModelConfig(**values["model"])
        for name in {"heads", "mean", "std", "scale"} & values.keys():
            values[name] = tuple(values[name])
        description = Description(**values)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: damaged, or of another version of wcl") from error
    if wrong:
        raise InputError(f"{file}: damaged; the {wrong} that it states cannot be")
    return description


def _wrong(values: dict[str, Any]) -> str:
    """Which value of a description none can have; empty if all are right."""
    model, channels, area = values["model"], values["channels"], values.get("scale", [0, 1])
    right = {
        "backbone": isinstance(model["backbone"], str),
        "stem": model["stem"] in get_args(get_type_hints(ModelConfig)["stem"]),
        **{name: _is_whole(model[name], *ends) for name, ends in _MODEL_NUMBERS.items()},
        **{
            name: _is_whole(values[name], *ends)
            for name, ends in _NUMBERS.items()
            if name in values
        },
        **{name: isinstance(values[name], str) for name in _TEXTS if name in values},
        "heads": values["heads"] in _HEADS,
        "mean": _are_numbers(values["mean"], channels, -_FAR),
        "std": _are_numbers(values["std"], channels, 1 / _FAR),
        "scale": _are_numbers(area, 2, 0, 1) and area == sorted(area),
        "flip": _are_numbers([values.get("flip", 0)], 1, 0, 1),
    }
    return next((name for name, fits in right.items() if not fits), "")


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _are_numbers(values: Any, count: int, least: float, most: float = _FAR) -> bool:
    return len(values) == count and all(
        type(value) in (int, float) and least <= value <= most for value in values
    )


def projection_head(features: int, width: int, out: int, layers: int) -> nn.Sequential:
    """Linear–norm–ReLU, `layers` − 1 times, then linear: SimCLR's non-linear head."""
    parts: list[nn.Module] = []
    for before in [features, *[width] * (layers - 2)]:
        parts += [
            nn.Linear(before, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*parts, nn.Linear(width, out))


def check_size(encoder: Encoder, size: int, setting: str) -> None:
    """Raise InputError, naming the setting, if the backbone cannot take images of that size."""
    described = encoder.description
    blank = torch.zeros(2, described.channels, size, size)
    try:
        with torch.no_grad():
            encoder.eval()(blank.to(next(encoder.parameters()).dtype))
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"--{setting}: {described.model.backbone} cannot take images of "
            f"{size}×{size} pixels ({str(error).splitlines()[0]})"
        ) from error
