"""Weighted k-nearest-neighbor classification of frozen features (Wu et al., 2018)."""

import torch
from torch import Tensor

from wcl.config import KnnConfig
from wcl.config.bounds import above, at_least
from wcl.data import Source
from wcl.evaluation.classification import setting_values, sweep_details
from wcl.evaluation.confusion import check_confusion, class_results
from wcl.evaluation.features import features
from wcl.evaluation.result import Result
from wcl.evaluation.uncertainty import Figure, accuracy
from wcl.models.encoder import Encoder
from wcl.neighbors import nearest

HAS_REFERENCES = True
_MAX_K = 200  # as in Wu et al.; the paper has no k-NN evaluation


def knn(encoder: Encoder, train: Source, test: Source, config: KnnConfig) -> Result:
    """Classify the test images by a vote of their k nearest training images."""
    ks = setting_values("k", config.k, int, at_least(0))
    temperatures = setting_values("temperature", config.temperature, float, above(0))
    check_confusion(config)
    bank, bank_labels = features(encoder, train, config.num_workers)
    queries, labels = features(encoder, test, config.num_workers)
    ks = [min(k or default_k(bank_labels), len(bank)) for k in ks]
    neighbors = nearest(queries, bank, max(ks), device=encoder.device)
    predictions = {
        (k, temperature): vote(neighbors, bank_labels, len(train.classes), k, temperature)
        for k in ks
        for temperature in temperatures
    }
    figures = {values: accuracy(predicted == labels) for values, predicted in predictions.items()}
    sweep = [
        {"k": k, "temperature": temperature, "top1": figure.score}
        for (k, temperature), figure in figures.items()
    ]
    rows = class_results(config, predictions[ks[0], temperatures[0]], labels, train.classes)
    details = {"k": ks[0], "temperature": temperatures[0], **sweep_details(sweep)}
    figure = figures[ks[0], temperatures[0]]
    images = len(bank), len(labels)
    return Result("knn", figure.score, *images, details, rows, figures=[figure])


def default_k(labels: Tensor) -> int:
    """Return how many neighbors vote, given the classes (N,) of the bank.

    With more votes than a class has members, large classes would outvote it.
    """
    return min(_MAX_K, int(labels.unique(return_counts=True)[1].min()))


def predict(
    queries: Tensor, bank: Tensor, labels: Tensor, class_count: int, k: int, temperature: float
) -> Tensor:
    """Classify queries by a weighted vote of their k nearest features in a bank.

    Args:
        queries: (Q, D) features.
        bank: (N, D) features with known labels.
        labels: (N,) classes of the bank.
        class_count: number of classes.
        k: number of neighbors.
        temperature: τ of the weights exp(cosine / τ).

    Returns:
        (Q,) classes.
    """
    return vote(nearest(queries, bank, k), labels, class_count, k, temperature)


def vote(
    neighbors: tuple[Tensor, Tensor], labels: Tensor, class_count: int, k: int, temperature: float
) -> Tensor:
    """Classify by a vote of the first k neighbors, each weighted by exp(cosine / τ).

    Args:
        neighbors: (Q, K ≥ k) cosines and indices, as `nearest` returns them.
        labels, class_count, k, temperature: as for `predict`.

    Returns:
        (Q,) classes.
    """
    similarity, indices = (part[:, :k] for part in neighbors)
    votes = similarity.new_zeros(len(similarity), class_count)
    # Relative to the nearest neighbor: exp stays in range for any temperature.
    weights = torch.exp((similarity - similarity[:, :1]) / temperature)
    votes.scatter_add_(1, labels[indices], weights)
    return votes.argmax(dim=1)


def few_label_accuracy(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    per_class: int,
    draws: int = 5,
) -> Figure:
    """Compute 1-NN accuracy with a few labels per class, over seeded draws.

    Args:
        train, test: (N, D) and (M, D) features.
        train_labels, test_labels: (N,) and (M,) classes.
        per_class: labeled images per class; 0 for all.
        draws: number of draws of the labeled images; the draw d depends on d only.
    """
    classes = int(train_labels.max()) + 1
    correct = []
    for draw in range(draws if per_class else 1):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(draw))
        rows = torch.cat(
            [order[train_labels[order] == label][: per_class or None] for label in range(classes)]
        )
        predicted = predict(test, train[rows], train_labels[rows], classes, k=1, temperature=0.1)
        correct.append(predicted == test_labels)
    return accuracy(torch.stack(correct))
