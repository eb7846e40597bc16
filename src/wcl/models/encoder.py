"""The encoder: a backbone and named projection heads, with one self-describing weight file."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from wcl.models.backbones import build_backbone
from wcl.models.description import Description, parse_description
from wcl.models.embedder import Embedder
from wcl.models.image_sizes import size_problem, try_size, working_sizes
from wcl.models.weights_file import read_with_metadata, write_weights
from wcl.system.errors import InputError
from wcl.system.paths import expanded
from wcl.system.run_folder import weights_of

# Keys of the description in the safetensors header: of a whole encoder, and of a backbone alone,
# whose weights have timm's names.
_WHOLE, _BACKBONE = "wcl-encoder-1", "wcl-backbone-1"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Encoder(nn.Module, Embedder):
    """A backbone and any number of projection heads on top of its pooled features."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description = description
        self.home: Path | None = None
        """Folder of the run it was loaded from, where results may be cached."""
        self.frozen_batch_norm = False
        """Whether the backbone's batch norm keeps its statistics in training mode too."""
        model = description.model
        self.backbone = build_backbone(model, description.channels, description.image_size)
        # Models that widen their features after the pooling state it as head_hidden_size.
        backbone: Any = self.backbone
        self.feature_dim = int(getattr(backbone, "head_hidden_size", None) or backbone.num_features)
        dims = self.feature_dim, model.head_hidden_dim, model.head_out_dim
        self.heads = nn.ModuleDict(
            {name: projection_head(*dims, model.head_layers) for name in description.heads}
        )

    def train(self, mode: bool = True) -> "Encoder":
        super().train(mode)
        if self.frozen_batch_norm:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    __repr__ = Embedder.__repr__  # nn.Module's lists every layer

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Compute the features and their projections.

        Args:
            images: (N, C, H, W), normalized.

        Returns:
            "h": (N, feature_dim) pooled features; and (N, D) by the name of each head.
        """
        h = self.backbone(images)
        return {"h": h, **{name: head(h) for name, head in self.heads.items()}}

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def normalize(self, pixels: Tensor) -> Tensor:
        """Convert (N, C, H, W) bytes, or floats from 0 to 1, to the backbone's input."""
        self._check(pixels)
        dtype = next(self.parameters()).dtype
        mean, std = (
            torch.tensor(values, device=self.device).to(dtype)[:, None, None]
            for values in (self.description.mean, self.description.std)
        )
        pixels = pixels.to(self.device, non_blocking=True)
        return (self._between_0_and_1(pixels, dtype) - mean) / std

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
        """Write weights and description to one safetensors file, atomically."""
        self._write(path, self.state_dict(), _WHOLE, self.described())

    def save_backbone(self, path: Path) -> None:
        """Write the backbone alone, under timm's weight names, and the description."""
        self._write(path, self.backbone.state_dict(), _BACKBONE, self.described(heads=()))

    def described(self, **changes: Any) -> dict[str, Any]:
        """Return the description as plain values, with the hash of the current weights."""
        sha256 = weights_sha256(self.backbone.state_dict())
        stated = replace(self.description, sha256=sha256, feature_dim=self.feature_dim, **changes)
        return asdict(stated)

    def _write(
        self, path: Path, weights: dict[str, Tensor], key: str, described: dict[str, Any]
    ) -> None:
        sealed = described | {"seal": _seal(described, weights)}
        write_weights(path, weights, {key: json.dumps(sealed)})


def projection_head(features: int, hidden: int, out: int, layers: int) -> nn.Sequential:
    """Build SimCLR's non-linear head: linear–norm–ReLU `layers` − 1 times, then linear."""
    parts: list[nn.Module] = []
    for before in [features, *[hidden] * (layers - 2)]:
        parts += [
            nn.Linear(before, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*parts, nn.Linear(hidden, out))


def load(path: str | Path, device: str = "cpu") -> Encoder:
    """Load an encoder from a run folder, its `encoder.safetensors`, or an export with weights.

    Exports with weights are those to timm, to safetensors and to a hub folder. `wcl.load` opens
    the others too.

    Raises:
        InputError: there is no encoder, or the file is damaged.
    """
    place, file = expanded(path), weights_of(path)
    try:
        weights, metadata = read_with_metadata(file)
    except (SafetensorError, KeyError) as error:  # KeyError: a dtype that torch does not know
        if file.suffix in (".onnx", ".pt"):
            raise InputError(
                f"{file}: the weights are needed, which {file.suffix} files do not give; give the "
                "run that it was exported from"
            ) from error
        raise InputError(f"{file}: not a safetensors file ({error})") from error
    description = described_in(metadata, file)
    if description is None:
        raise InputError(
            f"{file}: a safetensors file, but not an encoder written by wcl; for weights of a timm "
            "model, give timm:NAME@FILE"
        )
    key = _key(metadata)
    try:
        stated = json.loads(metadata[key])
        if stated.pop("seal", "") != _seal(stated, weights):
            raise ValueError("the hash does not match")
        _check_shapes(weights, description, key == _WHOLE)
        encoder = Encoder(description)
        (encoder if key == _WHOLE else encoder.backbone).load_state_dict(weights)
    except Exception as error:  # timm's networks reject settings in many ways
        raise InputError(
            f"{file}: damaged, or written by another version of wcl; write it again"
        ) from error
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise InputError(
            f"{file}: the weights are not finite (NaN or infinity); train again with a smaller "
            "--optim.lr"
        )
    is_run = place.is_dir() and not (place / "config.json").exists()  # which a hub folder has
    encoder.home = place if is_run else None
    return encoder.to(device).eval()


def described_in(metadata: dict[str, str], file: Path) -> Description | None:
    """Return the description in the metadata of a file; None if wcl did not write the file.

    Raises:
        InputError: the description is damaged.
    """
    key = _key(metadata)
    return parse_description(metadata[key], file) if key else None


def _key(metadata: dict[str, str]) -> str:
    return next((key for key in (_WHOLE, _BACKBONE) if key in metadata), "")


def _check_shapes(weights: dict[str, Tensor], description: Description, whole: bool) -> None:
    """Raise ValueError if the weights do not belong to the described network.

    The network is built without memory: a small file may describe an enormous one.
    """
    with torch.device("meta"):
        outline = Encoder(description)
    wanted = (outline if whole else outline.backbone).state_dict()
    given_kinds, wanted_kinds = (
        {name: (tensor.shape, _kind(tensor)) for name, tensor in tensors.items()}
        for tensors in (weights, wanted)
    )
    if given_kinds != wanted_kinds:
        raise ValueError("weights of another network")


def _kind(tensor: Tensor) -> torch.dtype:
    """Return the dtype; the floating-point precisions of runs count as one."""
    return torch.float32 if tensor.dtype in _FLOATS else tensor.dtype


def _seal(described: dict[str, Any], weights: dict[str, Tensor]) -> str:
    """Compute the SHA-256 of a file's description and weights."""
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha256(f"{text} {weights_sha256(weights)}".encode()).hexdigest()


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """Compute the SHA-256 of the name and bytes of every tensor, in the order of the names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_image_size(encoder: Encoder, size: int, setting: str) -> None:
    """Raise InputError, naming what sets it, if the backbone cannot take images of that size."""
    described = encoder.description
    model, channels, built_for = described.model, described.channels, described.image_size

    def build(other: int) -> nn.Module:
        return build_backbone(model, channels, other if size == built_for else built_for)

    try:
        try_size(encoder, channels, size)
    except (RuntimeError, AssertionError) as error:
        sizes = working_sizes(build, channels, size, built_for)
        raise InputError(size_problem(setting, model.backbone, size, error, sizes)) from error
