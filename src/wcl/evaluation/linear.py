"""Linear probe: one linear layer on the frozen encoder (the paper's evaluation protocol).

SGD with momentum 0.9, rate 0.1·batch/256, cosine, no weight decay, 80 epochs. The accuracy of the
LAST epoch is the result. `paper` sends fresh random crops and flips through the encoder in every
epoch; `fast` does so in a few epochs and repeats their features in the others.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from wcl.config import LinearConfig
from wcl.config.validation import MAX_LR
from wcl.data import Source
from wcl.evaluation.classes import by_class, check_confusion, write_confusion
from wcl.evaluation.crops import Batches, CropFeatures
from wcl.evaluation.features import features
from wcl.evaluation.numbers import numbers
from wcl.evaluation.result import Result
from wcl.models.encoder import Encoder
from wcl.ops.randomness import seed_of
from wcl.system.errors import InputError, RunError
from wcl.system.progress import track
from wcl.training.optimizers import lr_at, set_lr


def linear(encoder: Encoder, train: Source, test: Source, config: LinearConfig) -> Result:
    """Train a linear classifier and test it."""
    began = time.perf_counter()
    for name in ("batch_size", "epochs"):
        if getattr(config, name) < 1:
            raise InputError(f"--{name}: must be at least 1, not {getattr(config, name)}")
    rates = numbers("lr", config.lr, float)
    most = MAX_LR / config.batch_size
    if not rates or not all(0 < rate <= most for rate in rates):
        raise InputError(f"--lr: must be above 0 and at most {most:g}, not {config.lr}")
    check_confusion(config)
    if config.mode not in ("fast", "paper"):
        raise InputError(f"--mode: {config.mode} is not one of fast, paper")
    test_features, test_labels = (
        t.to(encoder.device) for t in features(encoder, test, config.num_workers)
    )
    batch = min(config.batch_size, len(train))
    crops = CropFeatures(encoder, train, batch, config.seed, config.num_workers)
    batches = crops.in_turn(config.epochs) if config.mode == "fast" else crops.fresh
    peaks = [rate * batch / 256 for rate in rates]
    shape = encoder.feature_dim, len(train.classes)
    layers = fit(batches, crops.steps, config.epochs, shape, peaks, config.seed, encoder.device)
    for rate, layer in zip(rates, layers, strict=True):
        if not bool(layer.weight.isfinite().all()):
            raise RunError(f"--lr {rate:g}: the classifier diverged; use a smaller one")
    sweep = []
    with torch.no_grad():
        for rate, layer in zip(rates, layers, strict=True):
            ranked = layer(test_features).topk(min(5, len(train.classes)), dim=1).indices
            right = ranked == test_labels[:, None]
            top1, top5 = right[:, 0].float().mean(), right.any(dim=1).float().mean()
            sweep.append({"lr": rate, "top1": float(top1), "top5": float(top5)})
        predicted = layers[0](test_features).argmax(dim=1)
    write_confusion(config, predicted, test_labels, train.classes)
    details: dict[str, Any] = {
        "top5": sweep[0]["top5"],
        "mode": config.mode,
        "epochs": config.epochs,
    }
    if len(sweep) > 1:
        details |= {"sweep": sweep, "best_on_test": max(row["top1"] for row in sweep)}
    return Result(
        "linear",
        sweep[0]["top1"],
        crops.images,
        len(test_labels),
        time.perf_counter() - began,
        details,
        by_class(predicted, test_labels, train.classes) if config.per_class else [],
    )


def fit(
    batches: Batches,
    steps: int,
    epochs: int,
    shape: tuple[int, int],
    peaks: Sequence[float],
    seed: int,
    device: torch.device,
) -> list[nn.Linear]:
    """Train layers of shape (inputs, classes) on `batches(epoch)`, `steps` in each epoch.

    One for each peak rate, from the same start and on the same batches.
    """
    layers = [untrained_layer(shape, seed).to(device) for _ in peaks]
    optimizers = [
        torch.optim.SGD(layer.parameters(), lr=peak, momentum=0.9)
        for layer, peak in zip(layers, peaks, strict=True)
    ]
    step, total = 0, steps * epochs
    for epoch in track(range(epochs), "training the linear layer"):
        for inputs_now, labels in batches(epoch):
            for layer, optimizer, peak in zip(layers, optimizers, peaks, strict=True):
                set_lr(optimizer, lr_at(step, peak, 0, total))
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(layer(inputs_now), labels).backward()
                optimizer.step()
            step += 1
    return layers


def untrained_layer(shape: tuple[int, int], seed: int) -> nn.Linear:
    """A linear classifier (inputs, classes) that hardly prefers a class yet."""
    layer = nn.Linear(*shape)
    generator = torch.Generator().manual_seed(seed_of(seed, "linear"))
    nn.init.normal_(layer.weight, std=0.01, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
