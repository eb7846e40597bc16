"""SimCLR and embedding as lightly's documentation writes them, to compare with."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from lightly.data import LightlyDataset
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms.simclr_transform import SimCLRTransform
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.networks import with_convolutions
from benchmarks.timing import medians
from wcl.config import ModelConfig
from wcl.models.backbones import build_backbone

_WORKERS = (0, 1, 2)


class Pictures(Dataset[tuple[Any, int]]):
    """Small images in memory as torchvision's CIFAR-10 returns them."""

    def __init__(self, pixels: Tensor) -> None:
        self._pixels = pixels.permute(0, 2, 3, 1).contiguous().numpy()
        self.transform: Any = None  # which LightlyDataset sets

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = Image.fromarray(self._pixels[index])
        return (picture if self.transform is None else self.transform(picture)), 0


class LightlySimCLR(nn.Module):
    """A backbone with lightly's projection head."""

    def __init__(self, model: ModelConfig, size: int) -> None:
        super().__init__()
        self.backbone = with_convolutions(build_backbone(model, 3, size))
        features: Any = self.backbone.num_features
        self.head = SimCLRProjectionHead(features, model.head_hidden_dim, model.head_out_dim)

    def forward(self, images: Tensor) -> Tensor:
        z: Tensor = self.head(self.backbone(images))
        return z


def training_epoch(
    data: Pictures | Path, model: ModelConfig, size: int, batch_size: int, transform: Any
) -> Callable[[], None]:
    """Return a function that trains an epoch with the fastest number of workers.

    Args:
        data: images in memory, or a folder.
        model, size, batch_size: as in a run of ours.
        transform: one of lightly's, which returns two views.
    """
    if isinstance(data, Path):
        dataset = LightlyDataset(str(data), transform=transform)
    else:
        dataset = LightlyDataset.from_torch_dataset(data, transform=transform)
    network = LightlySimCLR(model, size).train()
    criterion = NTXentLoss(temperature=0.1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def epoch(loader: Iterable[Any]) -> None:
        for (view1, view2), *_ in loader:
            loss = criterion(network(view1), network(view2))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    epochs = {}
    for workers in _WORKERS:
        loader = DataLoader(
            dataset,
            batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        epochs[str(workers)] = lambda loader=loader: epoch(loader)
    seconds = medians(epochs, 2)
    return epochs[min(seconds, key=seconds.__getitem__)]


def embedding(folder: Path, model: ModelConfig, size: int) -> Callable[[], Tensor]:
    """Return a function that computes the features of a folder with the fastest workers."""
    transform = transforms.Compose(
        [
            transforms.Resize(size),
            transforms.CenterCrop(size),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    dataset = LightlyDataset(str(folder), transform=transform)
    network = with_convolutions(build_backbone(model, 3, size)).eval()

    def embed(workers: int) -> Tensor:
        with torch.no_grad():
            loader = DataLoader(dataset, 64, num_workers=workers)
            return torch.cat([network(images) for images, *_ in loader])

    calls = {workers: lambda workers=workers: embed(workers) for workers in _WORKERS}
    seconds = medians({str(workers): call for workers, call in calls.items()}, 2)
    return calls[min(_WORKERS, key=lambda workers: seconds[str(workers)])]


def photo_transform(size: int) -> Any:
    """Return lightly's SimCLR transform in its defaults."""
    return SimCLRTransform(input_size=size)


def small_transform(size: int) -> Any:
    """Return lightly's SimCLR transform with the augmentation of our recipes for CIFAR-10."""
    return SimCLRTransform(
        input_size=size,
        cj_strength=0.5,
        min_scale=0.2,
        gaussian_blur=0.0,
    )
