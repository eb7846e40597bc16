"""Features: those of `embed`, without unreadable images, and cached in the run folder."""

import shutil
from pathlib import Path

import pytest
import torch

import wcl
from images import photo_folder
from runs import photo_run, tiny_run
from wcl.data import open_source
from wcl.evaluation.features import features, features_key


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=4, limit=256)


def test_features_are_those_of_embed_and_unreadable_images_are_left_out(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.models.encoder.load(photo_run(data, tmp_path / "run", epochs=1))
    (data / "cat" / "004.jpg").write_bytes(b"")
    source = wcl.data.open_source(str(data))
    found, labels = features(encoder, source, num_workers=1)
    assert len(found) == len(labels) == 23
    expected = encoder.embed([source.where(5)])
    torch.testing.assert_close(found[4:5], expected, rtol=1e-4, atol=1e-5)


def test_features_are_computed_once_for_an_encoder_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    source = open_source(str(data))
    encoder = wcl.load(run)
    first = features(encoder, source, num_workers=0)
    kept = list((run / "features").iterdir())
    assert len(kept) == 1

    def computed_again(*args: object) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(type(encoder), "embed", computed_again)
        second = features(wcl.load(run), open_source(str(data)), num_workers=0)
    assert all(map(torch.equal, first, second))


def test_changed_weights_images_or_sizes_are_computed_anew(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    encoder = wcl.load(run)
    first, _ = features(encoder, open_source(str(data)), num_workers=0)
    (data / "cat" / "000.jpg").write_bytes((data / "cat" / "001.jpg").read_bytes())
    second, _ = features(encoder, open_source(str(data)), num_workers=0)
    assert not torch.equal(first[0], second[0])
    torch.testing.assert_close(second[0], second[1])
    with torch.no_grad():
        next(encoder.backbone.parameters()).mul_(2)
    third, _ = features(encoder, open_source(str(data)), num_workers=0)
    assert not torch.equal(second, third)
    assert len(list((run / "features").iterdir())) == 3


def test_cached_features_that_are_damaged_are_computed_again(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    first = features(wcl.load(run), open_source(str(data)), num_workers=0)
    (kept,) = (run / "features").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    second = features(wcl.load(run), open_source(str(data)), num_workers=0)
    assert all(map(torch.equal, first, second))


def test_images_that_were_away_for_a_moment_are_not_left_out_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    source = open_source(str(data))
    key = features_key(encoder, source)
    monkeypatch.setattr("wcl.evaluation.features.features_key", lambda *_: key)  # asked before
    (data / "cat").rename(tmp_path / "away")
    assert len(features(encoder, source, num_workers=0)[1]) == 12
    assert "12 of 24 images cannot be read" in capsys.readouterr().err
    assert len(features(encoder, source, num_workers=0)[1]) == 12  # kept
    (tmp_path / "away").rename(data / "cat")
    assert len(features(encoder, source, num_workers=0)[1]) == 24
    assert "12 of 24 images cannot be read" in capsys.readouterr().err  # of the second time alone
    assert len(features(encoder, source, num_workers=0)[1]) == 24
    assert capsys.readouterr().err.count("cannot be read") == 0


def test_an_image_that_is_cut_short_does_not_have_all_features_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo_folder(tmp_path / "data")
    photo = data / "cat" / "003.jpg"
    photo.write_bytes(photo.read_bytes()[:-100])  # it can still be opened
    encoder = wcl.load(photo_run(data, tmp_path / "run", epochs=1))
    first = features(encoder, open_source(str(data)), num_workers=0)
    assert len(first[1]) == 23
    monkeypatch.delattr("wcl.evaluation.features.pixel_batches")  # cannot be called
    assert all(map(torch.equal, first, features(encoder, open_source(str(data)), num_workers=0)))


def test_that_features_cannot_be_cached_is_reported_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = tmp_path / "run"
    copied.mkdir()
    shutil.copy(run / "encoder.safetensors", copied)
    (copied / "features").write_text("in the way")
    wcl.evaluate(copied, "linear", "digits", epochs=5)
    assert capsys.readouterr().err.count("features are not cached for the next evaluation (") == 1


def test_an_encoder_that_is_not_of_a_run_caches_nothing(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    wcl.evaluate(run / "encoder.safetensors", "knn", data)
    assert not (run / "features").exists()
