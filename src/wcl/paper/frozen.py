"""Accuracies on frozen features: k-NN, a linear layer, and the nearest of a few labeled images."""

import torch

from wcl.config import KnnConfig, LinearConfig
from wcl.data import Source
from wcl.evaluation.crop_features import Epoch, repeated
from wcl.evaluation.features import features
from wcl.evaluation.knn import few_label_accuracy, knn
from wcl.evaluation.linear import fit
from wcl.models.encoder import Encoder

LABELS_PER_CLASS = (1, 3, 10)
_BATCH = 256


def frozen_accuracies(encoder: Encoder, train: Source, test: Source) -> dict[str, float]:
    """Compute accuracies in percent: `knn`, `linear`, and `1`, `3`, `10` labels per class.

    `knn` is `wcl eval knn`. `linear` is trained as by `wcl eval linear`, but on features of whole
    images instead of random crops, which takes a fifth of the time. With a few labels per class,
    images are classified by the nearest labeled one, averaged over draws as in `wcl demo`.
    """
    (inputs, labels), (queries, expected) = (features(encoder, split) for split in (train, test))
    found = {"knn": knn(encoder, train, test, KnnConfig()).score}

    config = LinearConfig()
    steps = max(1, len(labels) // _BATCH)
    batches = repeated([Epoch(inputs, labels, _sizes(len(labels), steps))], config.seed)
    shape = inputs.shape[1], len(train.classes)
    assert isinstance(config.lr, float)
    (layer,) = fit(
        batches, steps, config.epochs, shape, [config.lr], config.seed, torch.device("cpu")
    )
    with torch.no_grad():
        found["linear"] = float((layer(queries).argmax(dim=1) == expected).float().mean())
    for count in LABELS_PER_CLASS:
        found[str(count)] = few_label_accuracy(inputs, labels, queries, expected, count).score
    return {name: 100 * value for name, value in found.items()}


def _sizes(images: int, steps: int) -> list[int]:
    """Return the sizes of nearly equal batches."""
    return [images // steps + (step < images % steps) for step in range(steps)]
