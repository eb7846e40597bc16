"""Linear SVMs, one for each class, and the average precision of their scores."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import average_precision_score
from sklearn.svm import LinearSVC

from wcl.evaluation.few_labels import Labels
from wcl.evaluation.uncertainty import Figure
from wcl.ops.randomness import Floats
from wcl.system.machine import available_memory

# liblinear's copy of a feature, and our copy of the images that are used for a class.
_BYTES_PER_FEATURE = 24


def svm_scores(train: Floats, labels: Labels, test: Floats, cost: float) -> Floats:
    """Train an SVM for each class and score the test images.

    Squared hinge loss, L2 penalty, positives weighted twice: the settings of VISSL and PCL.

    Args:
        train: (N, D) features.
        labels: (N, classes); images with -1 are left out for that class.
        test: (M, D) features.
        cost: C, the weight of errors against the penalty.

    Returns:
        (M, classes) signed distances; 0 for a class without negatives or without positives.
    """

    def hyperplane(column: Labels) -> Floats:
        rows = np.flatnonzero(column != -1)
        if len(np.unique(column[rows])) < 2:
            return np.zeros(train.shape[1] + 1)
        # The primal problem has the same solution as the dual one that VISSL and PCL solve, and its
        # solver is deterministic. The dual solver draws from a generator that all threads share, so
        # that no two runs would agree to the last digit.
        svm = LinearSVC(
            C=cost, loss="squared_hinge", class_weight={1: 2, -1: 1}, dual=False, random_state=0
        )
        inputs = train if len(rows) == len(train) else train[rows]
        svm.fit(inputs, np.where(column[rows] == 1, 1, -1))
        return np.append(svm.coef_[0], svm.intercept_[0])

    # liblinear releases the interpreter lock, and threads need no copies of the features.
    limit = available_memory() // (_BYTES_PER_FEATURE * max(1, train.size))
    with ThreadPoolExecutor(max(1, min(torch.get_num_threads(), limit))) as pool:
        planes = np.stack(list(pool.map(hyperplane, labels.T)))
    scores: Floats = test @ planes[:, :-1].T + planes[:, -1]
    return scores


def mean_average_precision(scores: Floats, labels: Labels) -> Figure:
    """Compute the mean average precision, with the pseudo-value of each image.

    The mean is over the classes with a positive; -1 leaves an image out for its class.

    Args:
        scores: (M, classes), higher for more likely members of the class.
        labels: (M, classes), with at least one positive.
    """
    precisions, contributions = [], []
    for scored, column in zip(scores.T, labels.T, strict=True):
        if not (column == 1).any():
            continue
        rows = np.flatnonzero(column != -1)
        precision = average_precision_score(column[rows] == 1, scored[rows])
        without = average_precision_without_each(scored[rows], column[rows] == 1)
        own = np.full(len(column), precision)  # what an image that is left out does not change
        own[rows] = len(rows) * precision - (len(rows) - 1) * without
        precisions.append(precision)
        contributions.append(own)
    values = torch.from_numpy(np.mean(contributions, axis=0, keepdims=True)).float()
    return Figure(float(np.mean(precisions)), values)


def average_precision_without_each(scores: Floats, positive: npt.NDArray[np.bool_]) -> Floats:
    """Compute the average precision without each image in turn; equal scores count as ranked.

    Args:
        scores: (M,), higher for more likely members of the class.
        positive: (M,), with at least one True.

    Returns:
        (M,) average precisions; without the only positive, that of all images.
    """
    order = np.argsort(-scores, kind="stable")
    hit = positive[order]
    rank, found, count = np.arange(1, len(hit) + 1), np.cumsum(hit), int(hit.sum())
    kept = np.cumsum(np.where(hit, found / rank, 0))  # ranks above the image do not change
    below = np.maximum(rank - 1, 1)  # those below it move up by one

    def sum_after(precision: Floats) -> Floats:
        terms = np.where(hit, precision, 0)
        after: Floats = terms.sum() - np.cumsum(terms)
        return after

    before = kept - np.where(hit, found / rank, 0)
    negative = (before + sum_after(found / below)) / count
    with np.errstate(invalid="ignore", divide="ignore"):
        lost = (before + sum_after((found - 1) / below)) / (count - 1)
    values = np.empty(len(hit))
    values[order] = np.where(hit, lost if count > 1 else kept[-1] / count, negative)
    return values
