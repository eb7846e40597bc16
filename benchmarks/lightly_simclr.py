"""SimCLR and embedding as lightly's documentation writes them, to compare with."""

import sys
from collections.abc import Callable, Iterable
from functools import partial
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

_WORKERS: tuple[int, ...] = (0, 1, 2)
# How workers start where lightly is used alone: a process that was spawned would spawn them, too,
# and spawned workers cannot import lightly beside a torch for CPUs.
_START = "fork" if sys.platform.startswith("linux") else None


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

    def __init__(self, backbone: nn.Module, model: ModelConfig) -> None:
        super().__init__()
        self.backbone = with_convolutions(backbone)
        features: Any = self.backbone.num_features
        self.head = SimCLRProjectionHead(features, model.head_hidden_dim, model.head_out_dim)

    def forward(self, images: Tensor) -> Tensor:
        z: Tensor = self.head(self.backbone(images))
        return z


class LightlyTraining:
    """SimCLR on images, with SGD.

    Args:
        data: images in memory, or a folder.
        backbone: the network, whose convolutions become torch's.
        model: what the network is, and the dimensions of the projection head.
        batch_size: images per step.
        transform: one of lightly's, which returns two views.
    """

    def __init__(
        self,
        data: Pictures | Path,
        backbone: nn.Module,
        model: ModelConfig,
        batch_size: int,
        transform: Any,
    ) -> None:
        if isinstance(data, Path):
            self._dataset = LightlyDataset(str(data), transform=transform)
        else:
            self._dataset = LightlyDataset.from_torch_dataset(data, transform=transform)
        self._batch_size = batch_size
        self._network = LightlySimCLR(backbone, model).train()
        self._criterion = NTXentLoss(temperature=0.1)
        self._optimizer = torch.optim.SGD(
            self._network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4
        )

    def loader(self, workers: int) -> Iterable[Any]:
        """Return an iterable of the batches of an epoch, in another order each time."""
        return DataLoader(
            self._dataset,
            self._batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context=_START if workers else None,
        )

    def step(self, batch: Any) -> None:
        """Take a training step."""
        (view1, view2), *_ = batch
        loss = self._criterion(self._network(view1), self._network(view2))
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def set_lr(self, lr: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = lr

    def epoch(self, workers: int) -> Callable[[], None]:
        """Return a function that trains an epoch."""
        loader = self.loader(workers)

        def train() -> None:
            for batch in loader:
                self.step(batch)

        return train

    def fastest_workers(self) -> tuple[int, float]:
        """Return the best number of workers, and the seconds of an epoch with it."""
        return _fastest(self.epoch)


def _fastest(with_workers: Callable[[int], Callable[[], object]]) -> tuple[int, float]:
    """Return the number of workers with which a function is fastest, and its seconds."""
    seconds = medians({str(workers): with_workers(workers) for workers in _WORKERS}, 2)
    best = min(_WORKERS, key=lambda workers: seconds[str(workers)])
    return best, seconds[str(best)]


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
            start = _START if workers else None
            loader = DataLoader(dataset, 64, num_workers=workers, multiprocessing_context=start)
            return torch.cat([network(images) for images, *_ in loader])

    return partial(embed, _fastest(lambda workers: partial(embed, workers))[0])


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
