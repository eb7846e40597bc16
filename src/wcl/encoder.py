"""The network: a backbone from timm and the two projection heads; it saves and describes itself."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from wcl import __version__
from wcl.config import ModelConfig
from wcl.data.decode import centre_crop, open_image
from wcl.errors import InputError, nearest

# Widths of the four stages of small ResNets for work on a CPU: 1.2 M and 0.3 M parameters.
SMALL_RESNETS = {"resnet_small": (32, 64, 128, 256), "resnet_tiny": (16, 32, 64, 128)}
_FORMAT = "wcl-encoder-1"


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
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    method: str = "none"
    epoch: int = 0
    data: str = ""
    version: str = __version__


class Encoder(nn.Module):
    """A backbone with the projection heads g and φ, or one of them, or none."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description = description
        model = description.model
        self.backbone = build_backbone(model, description.channels, description.size)
        # Models that widen their features behind the pooling say so as head_hidden_size.
        backbone: Any = self.backbone
        self.features = int(getattr(backbone, "head_hidden_size", None) or backbone.num_features)
        self.g = self._head() if "g" in description.heads else None
        self.phi = self._head() if "phi" in description.heads else None

    def _head(self) -> nn.Sequential:
        model = self.description.model
        return projection_head(self.features, model.head_width, model.head_out, model.head_layers)

    def forward(self, images: Tensor) -> Embeddings:
        """(N, C, size, size) normalised images → features and projections."""
        h = self.backbone(images)
        return Embeddings(
            h,
            self.g(h) if self.g is not None else None,
            self.phi(h) if self.phi is not None else None,
        )

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def normalise(self, pixels: Tensor) -> Tensor:
        """(N, C, H, W) bytes → what the backbone expects, on its device."""
        pixels = pixels.to(self.device, non_blocking=True)
        mean, std = (
            torch.tensor(values, device=self.device)[:, None, None]
            for values in (self.description.mean, self.description.std)
        )
        return (pixels.float() / 255 - mean) / std

    @torch.no_grad()
    def embed(
        self,
        images: Tensor | str | Path | Image.Image | Sequence[str | Path | Image.Image],
        batch: int = 256,
    ) -> Tensor:
        """Features of images: a file or PIL image, several, or bytes (N, C, size, size).

        Args:
            images: what to embed. Files and PIL images are resized and cropped at the centre.
            batch: images per forward pass.

        Returns:
            (N, features) on the host.
        """
        if isinstance(images, str | Path | Image.Image):
            images = [images]
        training = self.training
        self.eval()
        try:
            parts = []
            for start in range(0, len(images), batch):
                chunk = images[start : start + batch]
                pixels = chunk if isinstance(chunk, Tensor) else self._pixels(chunk)
                parts.append(self.backbone(self.normalise(pixels)).float().cpu())
            return torch.cat(parts) if parts else torch.empty(0, self.features)
        finally:
            self.train(training)

    def _pixels(self, images: Sequence[str | Path | Image.Image]) -> Tensor:
        size, channels = self.description.size, self.description.channels
        opened = (i if isinstance(i, Image.Image) else open_image(Path(i)) for i in images)
        return torch.stack([centre_crop(image, size, channels) for image in opened])

    def save(self, path: Path) -> None:
        """Write weights and description as one safetensors file, whole or not at all."""
        metadata = {"format": _FORMAT, "description": json.dumps(asdict(self.description))}
        weights = {name: value.contiguous() for name, value in self.state_dict().items()}
        unfinished = path.with_name(path.name + ".tmp")
        save_file(weights, unfinished, metadata)
        unfinished.replace(path)


def load(path: str | Path, device: str = "cpu") -> Encoder:
    """Open an encoder: a run's folder or its `encoder.safetensors`.

    Raises:
        InputError: there is no encoder there, or the file is not one.
    """
    file = Path(path) / "encoder.safetensors" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InputError(
            f"{path}: no encoder.safetensors there; give a run that has finished an epoch"
        )
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{file}: not a safetensors file ({error})") from error
    if metadata.get("format") != _FORMAT:
        raise InputError(f"{file}: a safetensors file, but not an encoder that wcl wrote")
    try:
        encoder = Encoder(_described(json.loads(metadata["description"])))
        encoder.load_state_dict(weights)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: damaged, or of another version of wcl") from error
    return encoder.to(device).eval()


def _described(values: dict[str, Any]) -> Description:
    known = {field.name for field in fields(Description)}
    values = {name: value for name, value in values.items() if name in known}
    values["model"] = ModelConfig(**values["model"])
    for name in ("heads", "mean", "std"):
        values[name] = tuple(values[name])
    return Description(**values)


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


def build_backbone(model: ModelConfig, channels: int, size: int) -> nn.Module:
    """A timm backbone with pooled output, by name, with the stem that was asked for.

    Raises:
        InputError: no such backbone, or a stem that this backbone cannot have.
    """
    name = model.backbone
    if name in SMALL_RESNETS:
        widths = SMALL_RESNETS[name]
        backbone: nn.Module = ResNet(
            BasicBlock,  # type: ignore[arg-type]  # timm annotates an instance, and takes the class
            (1, 1, 1, 1),
            num_classes=0,
            in_chans=channels,
            channels=widths,
            stem_type="deep",  # the plain stem has 64 channels whatever the widths
            stem_width=widths[0] // 2,
        )
    else:
        if not timm.is_model(name):
            known = [*timm.list_models(), *SMALL_RESNETS]
            raise InputError(
                f"model.backbone: timm has no model {name!r}{nearest(name, known)}; "
                "timm.list_models() names them all"
            )
        pretrained = timm.get_pretrained_cfg(name)
        options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
        if pretrained and pretrained.fixed_input_size:
            options["img_size"] = size
        backbone = timm.create_model(name, **options)
    if model.stem != "native":
        if not isinstance(backbone, ResNet):
            raise InputError(f"model.stem: {model.stem} is for ResNets; {name} has its own stem")
        _shrink_stem(backbone, stride=1 if model.stem == "cifar" else 2)
    return backbone


def _shrink_stem(backbone: ResNet, stride: int) -> None:
    """3×3 with that stride in the place of 7×7 with stride 2, and no max-pool: for small images."""
    backbone.maxpool = nn.Sequential()
    old = backbone.conv1
    if isinstance(old, nn.Sequential):  # a deep stem begins with a 3×3 already
        first = old[0]
        assert isinstance(first, nn.Conv2d)
        first.stride = (stride, stride)
        return
    backbone.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, stride, 1, bias=False)
    nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
