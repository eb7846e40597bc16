"""Time of the fast linear probe, which caches features, against 80 epochs through the encoder."""

import time

import torch

from benchmarks.timing import medians
from wcl.config import AugmentConfig, LinearConfig, ModelConfig
from wcl.data import ArraySource
from wcl.evaluation.crop_features import CACHED_EPOCHS, Epoch, repeated
from wcl.evaluation.linear import fit, linear
from wcl.models.description import Description
from wcl.models.encoder import Encoder

_IMAGES = 50_000
_TIMED = 1_000  # images encoded here; the time of all is extrapolated
_EPOCHS = 80
_CLASSES = 10


def measure(rounds: int) -> dict[str, float]:
    """Return the times of both probes and their ratio: ResNet-18, 512 features, 32×32 pixels.

    An epoch through the encoder is timed on some of the images, because every image and every
    epoch takes the same time. The fast probe is trained on random features of all images, and the
    time of its few epochs through the encoder is added.
    """
    defaults = AugmentConfig()
    model = ModelConfig(backbone="resnet18", stem="cifar")
    description = Description(model, (), 3, 32, defaults.mean, defaults.std)
    encoder = Encoder(description).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, _CLASSES, (_IMAGES,), generator=generator)
    pixels = torch.randint(0, 256, (_TIMED, 3, 32, 32), generator=generator, dtype=torch.uint8)
    names = [str(number) for number in range(_CLASSES)]
    part = ArraySource("random", pixels, labels[:_TIMED], names)
    tiny = ArraySource("random", pixels[:64], labels[:64], names)
    one_epoch = LinearConfig(mode="paper", epochs=1)
    seconds = medians({"an epoch": lambda: linear(encoder, part, tiny, one_epoch)}, rounds)
    epoch = seconds["an epoch"] * _IMAGES / _TIMED
    rows = torch.randn(_IMAGES, encoder.feature_dim, generator=generator)
    fast = _fast_seconds(rows, labels) + min(CACHED_EPOCHS, _EPOCHS) * epoch
    full = _EPOCHS * epoch
    return {"full_over_fast": full / fast, "fast_seconds": fast, "full_seconds": full}


def _fast_seconds(rows: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the time to train the linear layer on cached features."""
    config = LinearConfig(epochs=_EPOCHS)
    steps = -(-len(labels) // config.batch_size)
    began = time.perf_counter()
    shape = rows.shape[1], _CLASSES
    sizes = [len(part) for part in labels.split(config.batch_size)]
    batches = repeated([Epoch(rows, labels, sizes)] * CACHED_EPOCHS, config.seed)
    fit(batches, steps, _EPOCHS, shape, [0.1], 0, torch.device("cpu"))
    return time.perf_counter() - began
