"""k-NN classification against scikit-learn and a naive vote, and its settings."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

import wcl
from images import photo_folder
from runs import tiny_run
from wcl.evaluation.knn import few_label_accuracy, predict
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=8, limit=512)


def clusters(count: int, seed: int, spread: float = 0.8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(4, 16, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(0, 4, (count,), generator=generator)
    return centers[labels] + spread * torch.randn(count, 16, generator=generator), labels


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.1), (200, 0.1), (50, 1.0)])
def test_the_vote_equals_scikit_learns_with_the_same_weights(k: int, temperature: float) -> None:
    bank, labels = clusters(300, 0)
    queries, _ = clusters(120, 1)
    reference = KNeighborsClassifier(
        k, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / temperature)
    )
    reference.fit(bank.double().numpy(), labels.numpy())
    expected = reference.predict(queries.double().numpy())
    found = predict(queries.double(), bank.double(), labels, 4, k, temperature)
    assert found.tolist() == expected.tolist()


def test_a_low_temperature_is_a_vote_of_the_nearest() -> None:
    bank, labels = clusters(200, 8)
    queries, _ = clusters(50, 9)
    nearest = predict(queries, bank, labels, 4, 1, 0.1)
    assert torch.equal(predict(queries, bank, labels, 4, 100, 1e-4), nearest)


def test_the_vote_equals_a_naive_loop() -> None:
    bank, labels = clusters(40, 2)
    queries, _ = clusters(10, 3)
    for query, found in zip(queries, predict(queries, bank, labels, 4, 9, 0.1), strict=True):
        similarity = torch.nn.functional.cosine_similarity(query[None], bank)
        votes = [0.0] * 4
        for index in similarity.argsort(descending=True)[:9].tolist():
            votes[int(labels[index])] += float(torch.exp(similarity[index] / 0.1))
        assert int(found) == int(np.argmax(votes))


def test_many_queries_are_answered_like_few() -> None:
    bank, labels = clusters(50, 4)
    queries, _ = clusters(2500, 5)
    whole = predict(queries, bank, labels, 4, 5, 0.1)
    assert torch.equal(whole[2400:], predict(queries[2400:], bank, labels, 4, 5, 0.1))


def test_few_labels_use_that_many_of_each_class_and_repeat_exactly() -> None:
    train, labels = clusters(400, 6, spread=0.4)
    test, test_labels = clusters(100, 7, spread=0.4)
    accuracies = [
        few_label_accuracy(train, labels, test, test_labels, count).score for count in (1, 10, 0)
    ]
    assert accuracies == [
        few_label_accuracy(train, labels, test, test_labels, count).score for count in (1, 10, 0)
    ]
    everything = predict(test, train, labels, 4, 1, 0.1)
    assert accuracies[2] == pytest.approx(float((everything == test_labels).float().mean()))
    assert accuracies[0] <= accuracies[2]


def test_knn_reports_what_the_design_says(run: Path) -> None:
    found = wcl.evaluate(run, "knn", "digits", k=20).as_dict()
    assert found["protocol"] == "knn"
    assert (found["n_train"], found["n_test"]) == (1297, 500)
    assert found["top1"] > 0.5
    assert found["k"] == 20


def test_without_k_no_more_vote_than_the_smallest_class_has(run: Path, tmp_path: Path) -> None:
    photos = photo_folder(tmp_path / "data", each=10)
    assert wcl.evaluate(run, "knn", photos).details["k"] == 8
    assert wcl.evaluate(run, "knn", "digits").details["k"] < 200


def test_a_sweep_of_knn_is_the_single_evaluations(run: Path) -> None:
    sweep = wcl.evaluate(run, "knn", "digits", k=[20, 1, 200], temperature=[0.1, 0.5])
    assert len(sweep.details["sweep"]) == 6
    for row in sweep.details["sweep"]:
        assert (
            row["top1"]
            == wcl.evaluate(run, "knn", "digits", k=row["k"], temperature=row["temperature"]).top1
        )
    assert sweep.top1 == sweep.details["sweep"][0]["top1"]
    best = max(row["top1"] for row in sweep.details["sweep"])
    assert sweep.details["best_on_test"] == best


def test_an_empty_list_of_settings_is_refused(run: Path) -> None:
    with pytest.raises(InputError, match="k: "):
        wcl.evaluate(run, "knn", "digits", k=[])
