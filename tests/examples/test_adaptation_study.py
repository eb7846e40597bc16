"""The study of adapting pretrained weights: its subsets, its table, and nothing trained twice."""

from pathlib import Path

import pytest

from adaptation_study import MEASURES, cached, show, subset
from wcl.data import open_source, open_splits
from wcl.data.decode import whole_pixels


def test_a_subset_has_the_images_and_labels_of_its_source(tmp_path: Path) -> None:
    spec = subset("digits:20:10", tmp_path / "some")
    train, test = open_splits(spec)
    assert (len(train), len(test)) == (20, 10)
    every = open_source("digits")
    assert every.labels is not None and train.labels is not None
    known = {
        whole_pixels(every.image(i)).numpy().tobytes(): int(every.labels[i])
        for i in range(len(every))
    }
    for number, label in enumerate(train.labels.tolist()):
        assert known[whole_pixels(train.image(number)).numpy().tobytes()] == label
    assert subset("digits:20:10", tmp_path / "some") == spec  # not written again
    assert subset("digits", tmp_path / "other") == "digits"


def test_the_table_has_means_spreads_and_differences(capsys: pytest.CaptureFixture[str]) -> None:
    untouched = dict.fromkeys(MEASURES, 0.5)
    runs = [
        {**dict.fromkeys(MEASURES, score), "seconds": 60.0, "pair precision, epoch 1": 0.7}
        for score in (0.55, 0.57)
    ]
    show("photos", untouched, {"adapt": runs})
    row = capsys.readouterr().out.splitlines()[-1]
    assert row == f"| adapt | {' | '.join(['56.0 ± 1.4 (+6.0)'] * 5)} | +5.0 | 70% | 60 |"


def test_figures_are_computed_once(tmp_path: Path) -> None:
    assert cached(tmp_path / "a.json", lambda: {"k-NN": 0.5}) == {"k-NN": 0.5}
    assert cached(tmp_path / "a.json", lambda: {"k-NN": 0.6}) == {"k-NN": 0.5}
