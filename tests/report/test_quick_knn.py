"""Quick k-NN scores: those of the evaluation, and of raw pixels."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import wcl
from runs import tiny_run
from wcl.apps import demo
from wcl.models.encoder import Encoder, load
from wcl.report.quick_knn import scores_of
from wcl.report.runs import read_run


def test_a_quick_knn_is_that_of_the_evaluation(run: Path, photos: Path) -> None:
    *few, row = scores_of([read_run(str(run))], [load(run)], str(photos), 0).rows
    smallest = int(row.setting.removeprefix("k = "))  # class
    expected = [f"{count} per class" for count in (1, 3, 10) if count <= smallest]
    assert [one.setting for one in few] == expected
    found = wcl.evaluate(run, "knn", photos, num_workers=0)
    assert row.runs == {0: found.score}
    assert (row.n_train, row.n_test) == (found.n_train, found.n_test)
    description = load(run).description
    torch.manual_seed(0)
    blank = Encoder(description).eval()
    assert row.untrained == {0: wcl.evaluate(blank, "knn", photos, num_workers=0).score}


def test_raw_pixels_vote_by_cosine(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "digits")
    *few, row = scores_of([read_run(str(run))], [load(run)], "digits", 0).rows
    expected = zip(demo.accuracies(None), demo.accuracies(load(run)), strict=True)
    for one, (pixels, score) in zip(few, expected, strict=False):  # the demo also has all labels
        assert one.runs == {0: pytest.approx(score)} and one.pixels == pytest.approx(
            pixels, abs=0.01
        )
    train, test = wcl.data.open_splits("digits")
    assert isinstance(train, wcl.data.ArraySource) and isinstance(test, wcl.data.ArraySource)
    assert train.labels is not None and test.labels is not None
    bank, queries = (F.normalize(s.pixels.flatten(1).double(), dim=1) for s in (train, test))
    right = 0
    k = int(row.setting.removeprefix("k = "))
    for query, label in zip(queries, test.labels, strict=True):
        cosines, near = (bank @ query).topk(k)
        votes = [float(torch.exp(cosines[train.labels[near] == c] / 0.1).sum()) for c in range(10)]
        right += int(np.argmax(votes)) == int(label)
    assert row.pixels == pytest.approx(right / len(queries), abs=0.004)
