"""The study of weak labels: shares that true classes correct, and a table."""

import pytest
import torch

from built_methods import DIM, build, normal, whole
from weak_label_study import MEASURES, Corrected, show

CLASSES = torch.tensor([0, 1, 2] * 3)


def corrected(how: str) -> torch.Tensor:
    """The shares of nine images of three classes, whose queue holds the nine and random rows."""
    method = build("weak_label_study:Corrected", labels=CLASSES, queue_size=20, corrected=how)
    assert isinstance(method, Corrected)
    method.double()
    phi = normal(0, 2, 9, DIM)
    method.loss({"h": phi, "g": phi, "phi": phi}, {"phi": normal(1, 1, 9, DIM)}, whole(9))
    method.after_step(0.5)
    t = torch.nn.functional.normalize(normal(2, 9, DIM), dim=1)
    itself = torch.arange(9)[:, None] == method.queue_images.rows
    return method.shares(t, itself, whole(9))


def test_one_class_keeps_the_proportions_of_the_teachers_shares() -> None:
    shares, kept = corrected("no"), corrected("one class")
    for i in range(9):
        others = [j for j in range(9) if j != i and CLASSES[j] == CLASSES[i]]
        expected = torch.zeros(20, dtype=torch.float64)
        expected[others] = shares[i, others] / shares[i, others].sum()
        torch.testing.assert_close(kept[i], expected)


def test_classes_give_equal_shares_to_the_other_images_of_the_class() -> None:
    shares = corrected("classes")
    expected = (CLASSES[:, None] == CLASSES).double() - torch.eye(9, dtype=torch.float64)
    torch.testing.assert_close(shares[:, :9], expected / 2)
    assert float(shares[:, 9:].sum()) == 0


def test_the_table_has_a_dash_where_a_row_has_no_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [{**dict.fromkeys(MEASURES.values(), value), "seconds": 3.0} for value in (50.0, 52.0)]
    bare = [{k: v for k, v in run.items() if k != "agreement"} | {"seconds": 2.0} for run in runs]
    show({"SimCLR": bare, "WCL": runs})
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first == "| SimCLR |" + " 51.0 ± 1.4 |" * (len(MEASURES) - 1) + " – | 1.00 |"
    assert second == "| WCL |" + " 51.0 ± 1.4 |" * len(MEASURES) + " 1.50 |"
