"""Evaluation without labels, of a run on images that have none."""

import json
from pathlib import Path

import pytest

import wcl
from images import flat_folder
from runs import photo_run
from wcl.evaluation.augmented import run_settings
from wcl.evaluation.unlabeled import baselines
from wcl.models.encoder import load, weights_sha256


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of photos without classes."""
    return flat_folder(tmp_path_factory.mktemp("data") / "photos", 24)


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(photos, tmp_path_factory.mktemp("runs") / "photos", num_workers=0)


def test_figures_and_verdict_of_a_run_without_labels(run: Path, photos: Path) -> None:
    result = wcl.evaluate(run, "unlabeled", num_workers=0).as_dict()
    json.dumps(result)
    assert result["n_test"] == len(list(photos.iterdir()))
    first = result["rows"][0]
    assert first.keys() == {"figure", "encoder", "untrained", "pixels"}
    verdict = {row["question"]: row["answer"] for row in result["verdict"]}
    assert verdict["Was it trained long enough?"] == "no" and len(verdict) == 3
    assert result["next_step"]
    again = wcl.evaluate(run, "unlabeled", num_workers=0)
    assert again.rows == result["rows"]


def test_a_run_that_continues_another_is_compared_with_it(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    model = {"backbone": "resnet_small", "stem": "stride2", "weights": str(run)}
    encoder = load(photo_run(photos, tmp_path / "next", model=model, num_workers=0))
    start = baselines(encoder, run_settings(encoder))["pretrained"]
    expected = load(run).backbone.state_dict()
    assert weights_sha256(start.backbone.state_dict()) == weights_sha256(expected)
    result = wcl.evaluate(encoder, "unlabeled", num_workers=0)
    assert result.rows[0].keys() == {"figure", "encoder", "untrained", "pretrained", "pixels"}
