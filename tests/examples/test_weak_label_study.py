"""The study of weak labels: what its variants change in soft WCL, and its table."""

from typing import Any

import numpy as np
import pytest
import torch

from built_methods import DIM, build, normal, whole
from wcl.neighbors import FeatureBank
from weak_label_study import MEASURES, TrueNeighbors, Variant, show

CLASSES = torch.tensor([0, 1, 2] * 3)


def shares_of(how: str) -> torch.Tensor:
    """The shares of nine images of three classes, whose queue holds the nine and random rows."""
    method = build("weak_label_study:Variant", labels=CLASSES, queue_size=20, shares=how)
    assert isinstance(method, Variant)
    method.double()
    phi = normal(0, 2, 9, DIM)
    method.loss({"h": phi, "g": phi, "phi": phi}, {"phi": normal(1, 1, 9, DIM)}, whole(9))
    method.after_step(0.5)
    t = torch.nn.functional.normalize(normal(2, 9, DIM), dim=1)
    itself = torch.arange(9)[:, None] == method.queue_images.rows
    return method.shares(t, itself, whole(9))


def test_one_class_keeps_the_proportions_of_the_teachers_shares() -> None:
    shares, kept = shares_of("soft"), shares_of("one class")
    for i in range(9):
        others = [j for j in range(9) if j != i and CLASSES[j] == CLASSES[i]]
        expected = torch.zeros(20, dtype=torch.float64)
        expected[others] = shares[i, others] / shares[i, others].sum()
        torch.testing.assert_close(kept[i], expected)


def test_classes_give_equal_shares_to_the_other_images_of_the_class() -> None:
    shares = shares_of("classes")
    expected = (CLASSES[:, None] == CLASSES).double() - torch.eye(9, dtype=torch.float64)
    torch.testing.assert_close(shares[:, :9], expected / 2)
    assert float(shares[:, 9:].sum()) == 0


def test_five_equal_shares_are_those_of_the_five_largest() -> None:
    shares, five = shares_of("soft"), shares_of("five")
    for row, chosen in zip(shares, five, strict=True):
        assert {*chosen.nonzero()[:, 0].tolist()} == {*row.argsort(descending=True)[:5].tolist()}
    assert five.unique().tolist() == [0, 1 / 5]


def loss_of(**settings: Any) -> dict[str, float]:
    method = build("weak_label_study:Variant", labels=CLASSES, queue_size=20, **settings).double()
    g, t = normal(0, 2, 9, DIM), normal(1, 1, 9, DIM)
    losses = method.loss({"h": g, "g": g, "phi": g}, {"phi": t}, whole(9))
    return {name: float(part) for name, part in {"loss": losses.total, **losses.parts}.items()}


def test_with_all_negatives_it_is_soft_wcl() -> None:
    method = build("softwcl", queue_size=20).double()
    g, t = normal(0, 2, 9, DIM), normal(1, 1, 9, DIM)
    expected = float(method.loss({"h": g, "g": g, "phi": g}, {"phi": t}, whole(9)).total)
    assert loss_of()["loss"] == pytest.approx(expected, rel=1e-6)
    found = loss_of(nce=0.3, soft=2.0)
    assert found["loss"] == pytest.approx(0.3 * found["nce"] + 2 * found["soft"], rel=1e-6)


def test_together_one_image_of_the_class_is_enough() -> None:
    settings: dict[str, Any] = {"queue_size": 20, "shares": "classes", "together": True}
    method = build("weak_label_study:Variant", labels=CLASSES, **settings)
    assert isinstance(method, Variant)
    predicted = normal(3, 2, 9, 5).log_softmax(dim=2)
    shares = torch.tensor([[0.5, 0, 0.5, 0, 0]] * 9, dtype=torch.float64)
    expected = -(predicted[..., 0].exp() + predicted[..., 2].exp()).log()
    torch.testing.assert_close(method.weak_loss(shares, predicted), expected)


def test_true_neighbors_are_the_nearest_of_the_class() -> None:
    method = build("weak_label_study:TrueNeighbors", labels=CLASSES)
    assert isinstance(method, TrueNeighbors)
    h = torch.nn.functional.normalize(normal(0, 9, 6), dim=1)
    bank = FeatureBank(9, 6)
    bank.store([np.arange(9)], h)
    method.end_of_epoch(bank)
    for i, neighbors in enumerate(bank.search(2).neighbors.tolist()):
        of_class = [j for j in range(9) if CLASSES[j] == CLASSES[i] and j != i]
        assert {*neighbors} == {*of_class}


def test_images_of_the_class_are_no_negatives() -> None:
    z = torch.nn.functional.normalize(normal(0, 2, 9, DIM), dim=2)
    terms = []
    for a in range(2):
        for i in range(9):
            logits = [
                z[a, i] @ z[b, j] / 0.1
                for b in range(2)
                for j in range(9)
                if CLASSES[j] != CLASSES[i] or (j == i and b != a)
            ]
            positive = z[a, i] @ z[1 - a, i] / 0.1
            terms.append(torch.stack(logits).logsumexp(0) - positive)
    expected = float(torch.stack(terms).mean())
    assert loss_of(negatives="other classes")["nce"] == pytest.approx(expected, rel=1e-5)
    assert loss_of(negatives="far")["nce"] < loss_of()["nce"]


def test_the_table_has_a_dash_where_a_row_has_no_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{**dict.fromkeys(MEASURES.values(), value), "seconds": 3.0} for value in (50.0, 52.0)]
    bare = [{k: v for k, v in run.items() if k != "agreement"} | {"seconds": 2.0} for run in runs]
    show({"SimCLR": bare, "WCL": runs})
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first == "| SimCLR |" + " 51.0 ± 1.4 |" * (len(MEASURES) - 1) + " – | 1.00 |"
    assert second == "| WCL |" + " 51.0 ± 1.4 |" * len(MEASURES) + " 1.50 |"
