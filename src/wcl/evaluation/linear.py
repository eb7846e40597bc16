"""Linear probe: one linear layer on the frozen encoder (the paper's evaluation protocol).

SGD with momentum 0.9, learning rate 0.1·batch/256 with cosine decay, no weight decay, 80 epochs;
Nesterov momentum, the size of the images and the scale of the crops are options.
The result is the accuracy after the LAST epoch. `paper` computes features of new random crops and
flips in every epoch; `fast` does so in a few epochs and reuses their features in the others.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config import LinearConfig
from wcl.config.evaluations import LEARNING_RATES
from wcl.data import Source
from wcl.evaluation.classification import setting_values, sweep_details
from wcl.evaluation.confusion import check_confusion, class_results
from wcl.evaluation.crop_features import Batches, CropFeatures
from wcl.evaluation.features import features
from wcl.evaluation.preprocessing import preprocessing
from wcl.evaluation.result import Result
from wcl.evaluation.uncertainty import Figure, accuracy
from wcl.models.encoder import Encoder
from wcl.ops.randomness import seed_of
from wcl.system.errors import RunError
from wcl.system.progress import track
from wcl.training.optimizers import SGD, lr_at, set_lr

HAS_REFERENCES = True
_REFERENCE_FACTORS = (1, 10, 100)  # of the learning rate


def linear(encoder: Encoder, train: Source, test: Source, config: LinearConfig) -> Result:
    """Train a linear classifier and test it."""
    lrs = setting_values("lr", config.lr, float, LEARNING_RATES)
    check_confusion(config)
    crops, ranked, labels = _ranked_classes(encoder, train, test, config, lrs)
    sweep = []
    for lr, classes in zip(lrs, ranked, strict=True):
        if classes is None:
            raise RunError(f"--lr {lr:g}: the classifier diverged; use a smaller one")
        correct = classes == labels[:, None]
        top1, top5 = correct[:, 0].float().mean(), correct.any(dim=1).float().mean()
        sweep.append({"lr": lr, "top1": float(top1), "top5": float(top5)})
    assert ranked[0] is not None
    predicted = ranked[0][:, 0]
    rows = class_results(config, predicted, labels, train.classes)
    figure = accuracy(predicted == labels)
    details = {
        "top5": sweep[0]["top5"],
        "mode": config.mode,
        "epochs": config.epochs,
        "nesterov": config.nesterov,
        **preprocessing(encoder),
        **sweep_details(sweep),
    }
    images = crops.num_images, len(labels)
    return Result("linear", sweep[0]["top1"], *images, details, rows, figures=[figure])


def linear_reference(
    encoder: Encoder, train: Source, test: Source, config: LinearConfig
) -> list[Figure]:
    """Return the best accuracy on the test images at the learning rate of the result or above it.

    Features of other weights can be of another scale: at the same rate, those of an untrained
    network may have learned nothing yet, and the encoder's lead would be that of the rate.
    """
    lr = setting_values("lr", config.lr, float, LEARNING_RATES)[0]
    _, ranked, labels = _ranked_classes(
        encoder, train, test, config, [lr * factor for factor in _REFERENCE_FACTORS]
    )
    figures = [accuracy(classes[:, 0] == labels) for classes in ranked if classes is not None]
    if not figures:
        raise RunError("the classifier diverged")
    return [max(figures, key=lambda figure: figure.score)]


def _ranked_classes(
    encoder: Encoder, train: Source, test: Source, config: LinearConfig, lrs: Sequence[float]
) -> tuple[CropFeatures, list[Tensor | None], Tensor]:
    """Train a classifier at each learning rate.

    Returns:
        The features that they were trained on; for each classifier (n, 5) the most probable classes
        of the test images, or None if it diverged; and (n,) the true ones.
    """
    test_features, test_labels = (
        t.to(encoder.device) for t in features(encoder, test, config.num_workers)
    )
    batch_size = min(config.batch_size, len(train))
    crops = CropFeatures(encoder, train, batch_size, config.seed, config.num_workers)
    batches = crops.cached(config.epochs) if config.mode == "fast" else crops.fresh
    peaks = [lr * batch_size / 256 for lr in lrs]
    shape = encoder.feature_dim, len(train.classes)
    steps, device = crops.steps, encoder.device
    layers = fit(batches, steps, config.epochs, shape, peaks, config.seed, device, config.nesterov)
    with torch.no_grad():
        ranked = [
            layer(test_features).topk(min(5, shape[1]), dim=1).indices
            if bool(layer.weight.isfinite().all())
            else None
            for layer in layers
        ]
    return crops, ranked, test_labels


def fit(
    batches: Batches,
    steps: int,
    epochs: int,
    shape: tuple[int, int],
    peaks: Sequence[float],
    seed: int,
    device: torch.device,
    nesterov: bool = False,
) -> list[nn.Linear]:
    """Train layers of shape (inputs, classes) on `batches(epoch)`, `steps` in each epoch.

    There is one layer for each peak learning rate, with the same initial weights and batches.
    """
    layers = [untrained_layer(shape, seed).to(device) for _ in peaks]
    optimizers = [
        SGD(layer.parameters(), lr=peak, momentum=0.9, nesterov=nesterov)
        for layer, peak in zip(layers, peaks, strict=True)
    ]
    step, total = 0, steps * epochs
    for epoch in track(range(epochs), "training the linear layer"):
        for inputs, labels in batches(epoch):
            for layer, optimizer, peak in zip(layers, optimizers, peaks, strict=True):
                set_lr(optimizer, lr_at(step, peak, 0, total))
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(layer(inputs), labels).backward()
                optimizer.step()
            step += 1
    return layers


def untrained_layer(shape: tuple[int, int], seed: int) -> nn.Linear:
    """Return a linear classifier (inputs, classes) with small random weights."""
    layer = nn.Linear(*shape)
    generator = torch.Generator().manual_seed(seed_of(seed, "linear"))
    nn.init.normal_(layer.weight, std=0.01, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
