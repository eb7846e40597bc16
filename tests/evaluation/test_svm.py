"""SVMs and average precision against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.svm import LinearSVC

from wcl.evaluation.few_labels import Labels
from wcl.evaluation.svm import mean_average_precision, svm_scores


def random_labels(count: int = 60, seed: int = 0) -> Labels:
    """Several labels per image, a tenth of them in doubt."""
    generator = np.random.default_rng(seed)
    labels = (generator.random((count, 4)) < 0.4).astype(np.int8)
    labels[generator.random(labels.shape) < 0.1] = -1
    return labels


def test_average_precision_of_a_case_by_hand_without_the_difficult() -> None:
    # Ranked: right, difficult, wrong, right, wrong. Precision at the two right ones: 1/1 and 2/3.
    scores = np.array([[5.0], [4.0], [3.0], [2.0], [1.0]])
    labels = np.array([[1], [-1], [0], [1], [0]], dtype=np.int8)
    assert mean_average_precision(scores, labels).score == pytest.approx((1 + 2 / 3) / 2)


def test_average_precision_is_scikit_learns_over_the_classes_that_have_a_positive() -> None:
    labels = random_labels()
    labels[:, 3] = np.minimum(labels[:, 3], 0)
    scores = np.random.default_rng(1).normal(size=labels.shape)
    expected = []
    for c in range(3):
        counted = [row for row in range(len(labels)) if labels[row, c] != -1]
        truth = [labels[row, c] for row in counted]
        expected.append(average_precision_score(truth, [scores[row, c] for row in counted]))
    assert mean_average_precision(scores, labels).score == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("cost", [0.5, 1.0, 10.0])
def test_scores_are_those_of_the_svms_that_vissl_and_pcl_train(cost: float) -> None:
    generator = np.random.default_rng(0)
    train, test = (generator.normal(size=(count, 16)) for count in (60, 20))
    labels = random_labels()
    found = svm_scores(train, labels, test, cost)
    for c in range(4):
        rows = labels[:, c] != -1
        svm = LinearSVC(
            C=cost, class_weight={1: 2, -1: 1}, dual=True, tol=1e-8, max_iter=10**6, random_state=0
        )
        svm.fit(train[rows], np.where(labels[rows, c] == 1, 1, -1))
        np.testing.assert_allclose(found[:, c], svm.decision_function(test), atol=2e-3)


def test_svms_repeat_exactly_and_a_class_without_negatives_scores_nothing() -> None:
    generator = np.random.default_rng(0)
    train, test = (generator.normal(size=(count, 16)) for count in (60, 20))
    labels = random_labels()
    labels[:, 2] = 1
    first, second = (svm_scores(train, labels, test, 1.0) for _ in range(2))
    assert np.array_equal(first, second)
    assert not first[:, 2].any()
    assert first[:, 0].any()
