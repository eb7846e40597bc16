"""Weighted k-nearest-neighbour classification of frozen features (Wu et al., 2018)."""

import math
import time

import torch
from torch import Tensor

from wcl.config import KnnConfig
from wcl.data import Source
from wcl.encoder import Encoder
from wcl.errors import InputError
from wcl.evaluation.features import features
from wcl.evaluation.result import Result
from wcl.knn import nearest

_VOTERS = 200  # as Wu et al. and the paper have it


def knn(encoder: Encoder, train: Source, test: Source, config: KnnConfig) -> Result:
    """Classify the test images by a vote of their k nearest training images."""
    began = time.perf_counter()
    if config.k < 0:
        raise InputError(f"--k: must be at least 1, or 0 to choose, not {config.k}")
    if not 0 < config.tau < math.inf:
        raise InputError(f"--tau: must be above 0, not {config.tau}")
    bank, bank_labels = features(encoder, train, config.workers)
    queries, labels = features(encoder, test, config.workers)
    # More voters than a class has members would let the large classes outvote it.
    k = min(config.k or min(_VOTERS, int(torch.bincount(bank_labels).min())), len(bank))
    k = max(1, k)
    predicted = predict(queries, bank, bank_labels, len(train.classes), k, config.tau)
    return Result(
        "knn",
        float((predicted == labels).float().mean()),
        len(bank),
        len(queries),
        time.perf_counter() - began,
        {"k": k, "tau": config.tau},
    )


def predict(
    queries: Tensor, bank: Tensor, labels: Tensor, class_count: int, k: int, tau: float
) -> Tensor:
    """Classes of queries by weighted vote: each neighbour's counts exp(cosine / τ).

    Args:
        queries: (Q, D) features.
        bank: (N, D) features with known labels.
        labels: (N,) classes of the bank.
        class_count: how many classes there are.
        k: neighbours that vote.
        tau: temperature.

    Returns:
        (Q,) classes.
    """
    similarity, neighbour = nearest(queries, bank, k)
    votes = similarity.new_zeros(len(queries), class_count)
    # Relative to the nearest, so that no temperature is too low for exp.
    weights = torch.exp((similarity - similarity[:, :1]) / tau)
    votes.scatter_add_(1, labels[neighbour], weights)
    return votes.argmax(dim=1)


def few_label_accuracy(
    train: Tensor,
    train_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    per_class: int,
    draws: int = 5,
) -> float:
    """1-NN accuracy with a few labels per class, mean over seeded draws; 0 for all labels.

    Args:
        train, test: (N, D) and (M, D) features.
        train_labels, test_labels: (N,) and (M,) classes.
        per_class: labelled images of each class, 0 for all.
        draws: how many times the labelled images are drawn; draw d depends on d alone.
    """
    classes = int(train_labels.max()) + 1
    accuracies = []
    for draw in range(draws if per_class else 1):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(draw))
        rows = torch.cat(
            [order[train_labels[order] == label][: per_class or None] for label in range(classes)]
        )
        predicted = predict(test, train[rows], train_labels[rows], classes, k=1, tau=0.1)
        accuracies.append(float((predicted == test_labels).float().mean()))
    return sum(accuracies) / len(accuracies)
