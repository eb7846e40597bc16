"""Evaluations at another image size and crop scale than those of pretraining."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import wcl
from images import photo_folder
from runs import photo_run, tiny_run
from wcl.config import FinetuneConfig, KnnConfig, LinearConfig
from wcl.data import open_splits
from wcl.evaluation.crop_features import crop_and_flip
from wcl.evaluation.preprocessing import with_preprocessing
from wcl.models.encoder import Encoder, load
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_folder(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photo_run(data, tmp_path_factory.mktemp("runs") / "photos", epochs=1)


def described(run: Path, **changes: Any) -> Encoder:
    """The same weights, said to have been pretrained with other views."""
    encoder = load(run)
    encoder.description = replace(encoder.description, **changes)
    return encoder


def test_without_options_the_encoder_stays_as_it_is(run: Path) -> None:
    encoder = load(run)
    assert with_preprocessing(encoder, LinearConfig(data="x")) is encoder
    assert with_preprocessing(encoder, KnnConfig(data="x", image_size=32)) is encoder


def test_size_and_scale_are_those_of_the_options_and_the_given_encoder_keeps_its_own(
    run: Path,
) -> None:
    encoder = load(run)
    before = encoder.description
    prepared = with_preprocessing(
        encoder, FinetuneConfig(data="x", image_size=48, scale=(0.5, 0.7))
    )
    assert encoder.description == before
    maker = crop_and_flip(prepared)
    assert (maker.size, maker.config.scale) == (48, (0.5, 0.7))
    assert maker.config.flip == before.flip
    assert prepared.backbone is encoder.backbone
    assert prepared.home == encoder.home


def test_a_size_that_the_network_cannot_take_is_an_input_error(tmp_path: Path) -> None:
    encoder = load(tiny_run(tmp_path / "run", epochs=1, limit=32))  # its pooling needs 16 pixels
    with pytest.raises(InputError, match="image_size: conv_tiny cannot take images of 1×1"):
        with_preprocessing(encoder, KnnConfig(data="x", image_size=1))


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("knn", {}),
        ("linear", {"mode": "fast", "epochs": 2}),
        ("linear", {"mode": "paper", "epochs": 2, "lr": 1.0}),
        ("finetune", {"labels": "50%", "epochs": 2, "scratch": True}),
        ("lowshot", {"k": "1", "draws": 2}),
    ],
)
def test_the_result_is_that_of_an_encoder_pretrained_so(
    protocol: str, options: dict[str, Any], data: Path, run: Path
) -> None:
    changes: dict[str, Any] = {"image_size": 48}
    if protocol in ("linear", "finetune"):
        changes["scale"] = (0.4, 0.6)
    found, expected, plain = (
        wcl.evaluate(encoder, protocol, data, **options, **given).as_dict()
        for encoder, given in (
            (run, changes),
            (described(run, **changes), {}),
            (run, {}),
        )
    )
    for result in (found, expected, plain):
        result.pop("seconds")
    if "scale" in changes:
        assert (found["image_size"], found["scale"]) == (48, [0.4, 0.6])
        assert plain["image_size"] == 32
    for name in ("manifest", "drawn"):
        found.pop(name, None), expected.pop(name, None)
    assert found == expected


def test_features_of_another_size_are_not_taken_from_the_cache(data: Path, run: Path) -> None:
    test = open_splits(str(data))[1]
    wcl.evaluate(run, "knn", data, references=False)
    files = set((run / "features").iterdir())
    wcl.evaluate(run, "knn", data, image_size=40, references=False)
    new = set((run / "features").iterdir()) - files
    assert len(new) == 2  # of the training and of the test images
    small, large = (
        with_preprocessing(load(run), KnnConfig(data="x", image_size=size)) for size in (0, 40)
    )
    images = [test.where(row) for row in range(len(test))]
    assert not torch.equal(small.embed(images), large.embed(images))


def test_a_map_beside_another_run_has_the_size_for_both(
    data: Path, run: Path, tmp_path: Path
) -> None:
    def rows(out: str, **options: Any) -> list[dict[str, Any]]:
        options |= {"against": str(run), "out": str(tmp_path / out)}
        return wcl.evaluate(run, "project", data, **options).rows

    first, second = rows("a.png", image_size=48)
    assert first["silhouette"] == second["silhouette"] != rows("b.png")[0]["silhouette"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"image_size": 5000}, "image_size: must be between 0 and 4096"),
        ({"scale": [0.5, 0.2]}, r"scale: must be \[low, high\]"),
        ({"scale": (0.0, 1.0)}, r"scale: must be \[low, high\]"),
    ],
)
def test_impossible_values_are_refused(options: dict[str, Any], says: str, run: Path) -> None:
    with pytest.raises(InputError, match=says):
        wcl.evaluate(run, "linear", "digits", **options)
