"""Linear SVMs, one for each class, and the average precision of their scores."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from sklearn.svm import LinearSVC

from wcl.evaluation.few_labels import Labels
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


def mean_average_precision(scores: Floats, labels: Labels) -> float:
    """Compute the mean over the classes with a positive; -1 leaves an image out for its class.

    Args:
        scores: (M, classes), higher for more likely members of the class.
        labels: (M, classes), with at least one positive.
    """
    precisions = [
        average_precision_score(labels[rows, c] == 1, scores[rows, c])
        for c, rows in enumerate(labels.T != -1)
        if (labels[:, c] == 1).any()
    ]
    return float(np.mean(precisions))
