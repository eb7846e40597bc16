"""Weighted k-nearest-neighbor classification of frozen features (Wu et al., 2018)."""

import math
import time
from typing import Any

import torch
from torch import Tensor

from wcl.config import KnnConfig
from wcl.data import Source
from wcl.evaluation.classes import by_class, check_confusion, write_confusion
from wcl.evaluation.features import features
from wcl.evaluation.numbers import numbers
from wcl.evaluation.result import Result
from wcl.models.encoder import Encoder
from wcl.neighbors import nearest
from wcl.system.errors import InputError

_VOTERS = 200  # as Wu et al. and the paper have it


def knn(encoder: Encoder, train: Source, test: Source, config: KnnConfig) -> Result:
    """Classify the test images by a vote of their k nearest training images."""
    began = time.perf_counter()
    ks, temperatures = (
        numbers("k", config.k, int),
        numbers("temperature", config.temperature, float),
    )
    if not (ks and temperatures):
        raise InputError("--k and --temperature: give at least one number of each")
    if min(ks) < 0:
        raise InputError(f"--k: must be at least 1, or 0 to choose, not {min(ks)}")
    if not all(0 < temperature < math.inf for temperature in temperatures):
        raise InputError(f"--temperature: must be above 0, not {config.temperature}")
    check_confusion(config)
    bank, bank_labels = features(encoder, train, config.num_workers)
    queries, labels = features(encoder, test, config.num_workers)
    # More voters than a class has members would let the large classes outvote it.
    members = torch.bincount(bank_labels)
    fitting = min(_VOTERS, int(members[members > 0].min()))
    ks = [min(k or fitting, len(bank)) for k in ks]
    near = nearest(queries, bank, max(ks), device=encoder.device)
    predictions = {
        (k, temperature): vote(*near, bank_labels, len(train.classes), k, temperature)
        for k in ks
        for temperature in temperatures
    }
    sweep = [
        {"k": k, "temperature": temperature, "top1": float((predicted == labels).float().mean())}
        for (k, temperature), predicted in predictions.items()
    ]
    predicted = predictions[ks[0], temperatures[0]]
    write_confusion(config, predicted, labels, train.classes)
    details: dict[str, Any] = {"k": ks[0], "temperature": temperatures[0]}
    if len(sweep) > 1:
        details |= {"sweep": sweep, "best_on_test": max(row["top1"] for row in sweep)}
    return Result(
        "knn",
        sweep[0]["top1"],
        len(bank),
        len(queries),
        time.perf_counter() - began,
        details,
        by_class(predicted, labels, train.classes) if config.per_class else [],
    )


def predict(
    queries: Tensor, bank: Tensor, labels: Tensor, class_count: int, k: int, temperature: float
) -> Tensor:
    """Classes of queries by weighted vote of their k nearest in a bank.

    Args:
        queries: (Q, D) features.
        bank: (N, D) features with known labels.
        labels: (N,) classes of the bank.
        class_count: how many classes there are.
        k: neighbors that vote.
        tau: temperature.

    Returns:
        (Q,) classes.
    """
    return vote(*nearest(queries, bank, k), labels, class_count, k, temperature)


def vote(
    similarity: Tensor,
    neighbor: Tensor,
    labels: Tensor,
    class_count: int,
    k: int,
    temperature: float,
) -> Tensor:
    """Classes by a vote of the first k neighbors, each counting exp(cosine / τ).

    Args:
        similarity, neighbor: (Q, K ≥ k) cosines and numbers of the nearest, as `nearest` gives.
        labels, class_count, k, tau: as for `predict`.

    Returns:
        (Q,) classes.
    """
    similarity, neighbor = similarity[:, :k], neighbor[:, :k]
    votes = similarity.new_zeros(len(similarity), class_count)
    # Relative to the nearest, so that no temperature is too low for exp.
    weights = torch.exp((similarity - similarity[:, :1]) / temperature)
    votes.scatter_add_(1, labels[neighbor], weights)
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
        per_class: labeled images of each class, 0 for all.
        draws: how many times the labeled images are drawn; draw d depends on d alone.
    """
    classes = int(train_labels.max()) + 1
    accuracies = []
    for draw in range(draws if per_class else 1):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(draw))
        rows = torch.cat(
            [order[train_labels[order] == label][: per_class or None] for label in range(classes)]
        )
        predicted = predict(test, train[rows], train_labels[rows], classes, k=1, temperature=0.1)
        accuracies.append(float((predicted == test_labels).float().mean()))
    return sum(accuracies) / len(accuracies)
