"""k-NN accuracy as a callback of training: when it is due, and what it does when it cannot run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import wcl
from images import flat_folder, photo_folder
from runs import tiny_run
from wcl.config import PretrainConfig
from wcl.config.pretraining import LogConfig
from wcl.data import open_source
from wcl.evaluation.callback import KnnCallback
from wcl.system.errors import InputError
from wcl.training.setup import TrainingSetup


def trained(encoder: Any) -> TrainingSetup:
    """A run as far as the callback looks at it."""
    return cast(TrainingSetup, SimpleNamespace(encoder=encoder))


def callback(data: str | Path, every: int) -> KnnCallback:
    return KnnCallback(PretrainConfig(data=str(data), log=LogConfig(knn_every=every)))


def test_it_measures_what_evaluate_measures_in_the_epochs_asked_for(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    encoder = wcl.load(run)
    expected = wcl.evaluate(encoder, "knn", "digits").top1
    measure = callback("digits", every=2)
    assert [measure(trained(encoder), epoch) for epoch in (1, 2, 3, 4)] == [
        {},
        {"knn_top1": expected},
        {},
        {"knn_top1": expected},
    ]
    assert callback("digits", every=0)(trained(encoder), 2) == {}


def test_data_without_labels_are_refused_before_training_only_if_it_is_asked_for(
    tmp_path: Path,
) -> None:
    data = flat_folder(tmp_path / "data", 10)
    with pytest.raises(InputError, match=r"--log\.knn_every: .*no labels.*leave it at 0"):
        callback(data, every=1).check(open_source(str(data)))
    callback(data, every=0).check(open_source(str(data)))
    data = photo_folder(tmp_path / "labeled")
    callback(data, every=1).check(open_source(str(data)))


def test_test_images_that_disappear_are_reported_and_do_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = wcl.load(tiny_run(tmp_path / "run", epochs=1))
    assert callback(tmp_path / "gone", every=1)(trained(encoder), 3) == {}
    assert "k-NN after epoch 3: " in capsys.readouterr().err
