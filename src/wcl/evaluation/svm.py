"""Linear SVMs, one for each class, and the average precision of their scores."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import average_precision_score
from sklearn.svm import LinearSVC

from wcl.ops.randomness import Floats
from wcl.system.machine import available_memory

Labels = npt.NDArray[np.int8]
"""(images, classes): 1 of that class, 0 not, -1 left out for that class."""

# liblinear's copy of a feature, and ours of the images that a class has labels for.
_BYTES_PER_FEATURE = 24


def svm_scores(train: Floats, labels: Labels, test: Floats, cost: float) -> Floats:
    """Train an SVM for each class and score the test images.

    Squared hinge, L2 penalty, positives weighing twice: VISSL's and PCL's settings.

    Args:
        train: (N, D) features.
        labels: (N, classes); images with -1 are left out for that class.
        test: (M, D) features.
        cost: C, what errors weigh against the penalty.

    Returns:
        (M, classes) signed distances; 0 for a class that has no negative (or no positive).
    """

    def plane(wanted: Labels) -> Floats:
        rows = np.flatnonzero(wanted != -1)
        if len(np.unique(wanted[rows])) < 2:
            return np.zeros(train.shape[1] + 1)
        # The primal problem has the solution of the dual one that VISSL and PCL solve, and its
        # solver draws no random numbers. The dual's takes them from a generator that all threads
        # share, so that no two runs would agree to the last digit.
        svm = LinearSVC(
            C=cost, loss="squared_hinge", class_weight={1: 2, -1: 1}, dual=False, random_state=0
        )
        inputs = train if len(rows) == len(train) else train[rows]
        svm.fit(inputs, np.where(wanted[rows] == 1, 1, -1))
        return np.append(svm.coef_[0], svm.intercept_[0])

    # liblinear works without the interpreter's lock, and threads need no copies of the features.
    most = available_memory() // (_BYTES_PER_FEATURE * max(1, train.size))
    with ThreadPoolExecutor(max(1, min(torch.get_num_threads(), most))) as pool:
        planes = np.stack(list(pool.map(plane, labels.T)))
    scores: Floats = test @ planes[:, :-1].T + planes[:, -1]
    return scores


def mean_average_precision(scores: Floats, labels: Labels) -> float:
    """Mean over the classes that have a positive; images with -1 are left out for that class.

    Args:
        scores: (M, classes), higher for what is more likely of the class.
        labels: (M, classes), with a positive in at least one.
    """
    precisions = [
        average_precision_score(labels[rows, c] == 1, scores[rows, c])
        for c, rows in enumerate(labels.T != -1)
        if (labels[:, c] == 1).any()
    ]
    return float(np.mean(precisions))
