"""Features of random crops: as in pretraining, fresh or cached, and with the right labels."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import wcl
from images import photo_folder
from runs import photo_run, tiny_run
from wcl.data import Source, open_splits
from wcl.evaluation import crop_features
from wcl.evaluation.crop_features import CACHED_EPOCHS, CropFeatures, crop_and_flip
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=4, limit=256)


@pytest.fixture(scope="module")
def cutting(run: Path) -> Encoder:
    """An encoder whose pretraining is said to have cut and flipped."""
    encoder = wcl.load(run)
    encoder.description = replace(encoder.description, scale=(0.3, 0.6), flip=0.5)
    return encoder


@pytest.fixture(scope="module")
def digits() -> Source:
    return open_splits("digits")[0]


def whole(batches: crop_features.Batches, epoch: int) -> tuple[Tensor, Tensor]:
    inputs, labels = (torch.cat(some) for some in zip(*batches(epoch), strict=True))
    return inputs, labels


def in_some_order(inputs: Tensor, labels: Tensor) -> list[tuple[float, ...]]:
    return sorted(map(tuple, torch.cat([inputs, labels[:, None]], dim=1).tolist()))


def test_crops_and_flips_are_those_of_the_pretraining(run: Path, cutting: Encoder) -> None:
    own = crop_and_flip(wcl.load(run)).config
    assert (own.scale, own.flip) == ((1.0, 1.0), 0)  # as the recipe of the digits has it
    config = crop_and_flip(cutting).config
    assert (config.scale, config.flip) == ((0.3, 0.6), 0.5)
    assert (config.jitter, config.grayscale, config.blur) == (0, 0, 0)


def test_the_first_epochs_are_the_papers_to_the_bit(cutting: Encoder, digits: Source) -> None:
    paper, fast = (CropFeatures(cutting, digits, 128, 3) for _ in range(2))
    cached = fast.cached(CACHED_EPOCHS + 1)
    for epoch in range(CACHED_EPOCHS):
        for left, right in zip(whole(paper.fresh, epoch), whole(cached, epoch), strict=True):
            assert torch.equal(left, right)
    assert not torch.equal(whole(paper.fresh, CACHED_EPOCHS)[0], whole(cached, CACHED_EPOCHS)[0])


def test_later_epochs_repeat_them_in_other_orders(cutting: Encoder, digits: Source) -> None:
    cached = CropFeatures(cutting, digits, 128, 3).cached(3 * CACHED_EPOCHS)
    for epoch in range(CACHED_EPOCHS):
        first, second, third = (whole(cached, epoch + k * CACHED_EPOCHS) for k in range(3))
        assert not torch.equal(first[1], second[1])
        assert not torch.equal(second[1], third[1])
        assert in_some_order(*first) == in_some_order(*second) == in_some_order(*third)


def test_both_probes_are_one_as_long_as_nothing_is_repeated(run: Path) -> None:
    fast, paper = (
        wcl.evaluate(run, "linear", "digits", mode=mode, epochs=CACHED_EPOCHS, lr=1.0)
        for mode in ("fast", "paper")
    )
    # The untrained network is measured only by the fast probe, which is cheap enough for it.
    measured = set(paper.as_dict()) - {"mode", "seconds"}
    assert {key: fast.as_dict()[key] for key in measured} == {
        key: paper.as_dict()[key] for key in measured
    }


def test_crops_are_cached_for_the_next_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = wcl.evaluate(run, "linear", "digits", epochs=6)
    monkeypatch.setattr(CropFeatures, "_batches", None)  # cannot be called
    again = wcl.evaluate(run, "linear", "digits", epochs=6, lr=[0.1, 1.0])
    assert again.top1 == first.top1
    with pytest.raises(TypeError):
        wcl.evaluate(run, "linear", "digits", epochs=6, seed=1)


def test_photos_that_cannot_be_read_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    (data / "cat" / "004.jpg").write_bytes(b"")
    source = wcl.data.open_source(str(data))
    for mode in ("fast", "paper"):
        features = CropFeatures(encoder, source, len(source), 0, num_workers=0)
        batches = features.cached(2) if mode == "fast" else features.fresh
        for epoch in range(2):
            assert len(whole(batches, epoch)[1]) == len(source) - 1
        assert features.num_images == len(source) - 1
        assert capsys.readouterr().err.count("1 of 24 images cannot be read; left out") == 1


def test_both_have_the_same_steps_where_photos_cannot_be_read(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    for file in sorted(data.rglob("*.jpg"))[:11]:
        file.write_bytes(b"")
    features = CropFeatures(encoder, wcl.data.open_source(str(data)), 4, 0, num_workers=0)
    cached = features.cached(2 * CACHED_EPOCHS)
    for epoch in range(CACHED_EPOCHS):
        fresh, first, again = (
            [part for _, part in batches(number)]
            for batches, number in (
                (features.fresh, epoch),
                (cached, epoch),
                (cached, epoch + CACHED_EPOCHS),
            )
        )
        assert len(fresh) == len(first) == len(again)
        assert all(map(torch.equal, fresh, first))
        assert all(len(part) for part in again)


@pytest.mark.parametrize("mode", ["fast", "paper"])
def test_batches_of_which_nothing_can_be_read_are_passed_over(mode: str, tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    source = wcl.data.open_source(str(data))
    damaged = sorted(data.rglob("*.jpg"))
    for file in damaged[:-1]:
        file.write_bytes(b"")
    features = CropFeatures(encoder, source, 4, 0, num_workers=0)
    batches = features.cached(1) if mode == "fast" else features.fresh
    assert [len(labels) for _, labels in batches(0)] == [1]
    damaged[-1].write_bytes(b"")
    with pytest.raises(InputError, match="none of the 24 images asked for can be read"):
        features.cached(1) if mode == "fast" else list(batches(1))


def test_more_than_fits_into_memory_is_refused_with_the_other_way(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crop_features, "available_memory", lambda: 1000)
    with pytest.raises(InputError, match="use mode paper"):
        wcl.evaluate(run, "linear", "digits")
    assert wcl.evaluate(run, "linear", "digits", mode="paper", epochs=1).n_train == 1280
