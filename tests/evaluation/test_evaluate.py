"""`wcl.evaluate` on real runs: both protocols, what they report, and what they refuse."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional as F

import wcl
from images import encoded, flat_folder, photo_folder, picture
from runs import photo_run, tiny_run
from wcl.data import open_splits
from wcl.evaluation.features import features
from wcl.evaluation.knn import predict
from wcl.evaluation.linear import fit
from wcl.system.errors import InputError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=8, limit=512)


def test_knn_reports_what_the_design_says(run: Path) -> None:
    found = wcl.evaluate(run, "knn", "digits", k=20).as_dict()
    assert found["protocol"] == "knn"
    assert (found["n_train"], found["n_test"]) == (1297, 500)
    assert found["top1"] > 0.5
    assert found["k"] == 20


@pytest.mark.parametrize("mode", ["fast", "paper"])
def test_linear_learns_and_repeats_exactly(mode: str, run: Path) -> None:
    results = [wcl.evaluate(run, "linear", "digits", mode=mode, epochs=8, lr=1.0) for _ in range(2)]
    assert results[0].top1 == results[1].top1 > 0.25
    assert results[0].details["top5"] >= results[0].top1


def test_an_evaluation_changes_no_file_of_the_run(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    wcl.evaluate(run, "knn", "digits")
    assert before == {path: path.read_bytes() for path in before}
    new = {path.relative_to(run).parts[0] for path in run.rglob("*") if path.is_file()}
    assert new - {path.relative_to(run).parts[0] for path in before} <= {"features"}


def test_the_linear_layer_is_trained_as_the_protocol_says() -> None:
    """Against a hand-written loop: SGD, momentum 0.9, cosine from 0.1·batch/256, no decay."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 8, generator=generator)
    labels = torch.randint(0, 3, (64,), generator=generator)
    batches = [(inputs[:32], labels[:32]), (inputs[32:], labels[32:])]
    cpu = torch.device("cpu")
    layer, start = (
        fit(lambda epoch: iter(batches), 2, epochs, (8, 3), [0.1 * 32 / 256], 0, cpu)[0]
        for epochs in (3, 0)
    )
    weight, bias = start.weight.detach().clone(), start.bias.detach().clone()
    momentum = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for step in range(6):
        weight.requires_grad_(), bias.requires_grad_()
        x, y = batches[step % 2]
        grads = torch.autograd.grad(F.cross_entropy(x @ weight.T + bias, y), (weight, bias))
        rate = 0.1 * 32 / 256 * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / 6)))
        momentum = [0.9 * m + g for m, g in zip(momentum, grads, strict=True)]
        weight = (weight - rate * momentum[0]).detach()
        bias = (bias - rate * momentum[1]).detach()
    torch.testing.assert_close(layer.weight.detach(), weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(layer.bias.detach(), bias, rtol=1e-5, atol=1e-6)


def test_features_are_those_of_embed_and_unreadable_images_are_left_out(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    encoder = wcl.models.encoder.load(photo_run(data, tmp_path / "run", epochs=1))
    (data / "cat" / "004.jpg").write_bytes(b"")
    source = wcl.data.open_source(str(data))
    found, labels = features(encoder, source, num_workers=1)
    assert len(found) == len(labels) == 23
    expected = encoder.embed([source.where(5)])
    torch.testing.assert_close(found[4:5], expected, rtol=1e-4, atol=1e-5)


def test_photos_are_evaluated_too(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    assert wcl.evaluate(run, "knn", str(data)).n_test == 4
    assert wcl.evaluate(run, "linear", str(data), mode="paper", epochs=1).n_train == 20


def test_an_encoder_of_gray_images_takes_color_and_the_other_way_round(
    run: Path, tmp_path: Path
) -> None:
    data = photo_folder(tmp_path / "data")
    for mode in ("fast", "paper"):
        assert wcl.evaluate(run, "linear", data, mode=mode, epochs=1).n_test == 4
    color = photo_run(data, tmp_path / "color", epochs=1)
    for mode in ("fast", "paper"):
        assert wcl.evaluate(color, "linear", "digits", mode=mode, epochs=1).n_test == 500


def test_a_test_source_is_opened_at_its_test_split(run: Path) -> None:
    own, named = (wcl.evaluate(run, "knn", "digits", test_data=t) for t in ("", "digits"))
    assert own.top1 == named.top1


def test_data_without_labels_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no labels"):
        wcl.evaluate(run, "knn", str(flat_folder(tmp_path / "data")))


def test_a_test_set_may_lack_a_class(run: Path, tmp_path: Path) -> None:
    train = photo_folder(tmp_path / "train", ("ant", "bee", "cow"))
    test = photo_folder(tmp_path / "test", ("ant", "cow"))
    found = wcl.evaluate(run, "knn", train, test_data=str(test), k=1)
    whole = wcl.evaluate(run, "knn", train, test_data=str(train), k=1)
    assert found.n_test == 24
    assert whole.top1 == 1.0


def test_without_k_no_more_vote_than_the_smallest_class_has(run: Path, tmp_path: Path) -> None:
    photos = photo_folder(tmp_path / "data", each=10)
    assert wcl.evaluate(run, "knn", photos).details["k"] == 8
    assert wcl.evaluate(run, "knn", "digits").details["k"] < 200


def test_labels_may_have_gaps_in_their_numbers(run: Path, tmp_path: Path) -> None:
    images = [{"bytes": encoded(picture(i)), "path": None} for i in range(40)]
    labels = [(2, 7)[i % 2] for i in range(40)]
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "gaps.parquet")
    data = tmp_path / "gaps.parquet"
    assert wcl.evaluate(run, "knn", data).details["k"] == 16
    options: dict[str, Any] = {"labels": "3-per-class", "epochs": 1, "scratch": False}
    assert wcl.evaluate(run, "finetune", data, **options).n_train == 6


def test_a_part_of_which_nothing_can_be_read_is_not_taken_for_the_whole(
    run: Path, tmp_path: Path
) -> None:
    data = photo_folder(tmp_path / "data", each=10)
    _, test = open_splits(str(data))
    for row in range(len(test)):
        Path(test.where(row)).write_bytes(b"")
    with pytest.raises(InputError, match="none of the 4 images asked for can be read"):
        wcl.evaluate(run, "knn", data, num_workers=0)


def test_a_test_set_of_other_classes_is_refused(run: Path, tmp_path: Path) -> None:
    one = photo_folder(tmp_path / "one")
    other = photo_folder(tmp_path / "other", ("cat", "cow"))
    with pytest.raises(InputError, match=r"classes that .*one has no training image of: cow$"):
        wcl.evaluate(run, "knn", str(one), test_data=str(other))


@pytest.mark.parametrize(
    ("protocol", "data", "says"), [("kmn", "digits", "did you mean knn"), ("knn", "", "--data")]
)
def test_bad_requests_are_named(protocol: str, data: str, says: str, run: Path) -> None:
    with pytest.raises(InputError, match=says):
        wcl.evaluate(run, protocol, data)


def test_raw_digits_are_easy_so_the_splits_are_sound() -> None:
    train, test = open_splits("digits")
    assert isinstance(train, wcl.data.ArraySource)
    assert isinstance(test, wcl.data.ArraySource)
    assert train.labels is not None
    assert test.labels is not None
    predicted = predict(
        test.pixels.flatten(1).float(), train.pixels.flatten(1).float(), train.labels, 10, 1, 0.1
    )
    assert float((predicted == test.labels).float().mean()) > 0.97
