"""Fine-tuning on real digits: what is trained, what is reported, and what stays as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import wcl
from images import photo_folder
from runs import photo_run, tiny_run
from wcl.cli import run_command
from wcl.data import open_source, subset
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.evaluation.crop_features import crop_and_flip
from wcl.evaluation.few_labels import labeled_rows
from wcl.evaluation.network_training import batch_size_for, build_network, fit, true_labels
from wcl.models.encoder import load
from wcl.system.errors import InputError, RunError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=4, limit=512)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def numbers(printed: str) -> dict[str, Any]:
    """What `--json` printed, without what a clock measured."""
    found: dict[str, Any] = json.loads(printed)
    del found["seconds"]
    return found


def test_the_same_command_prints_the_same_numbers_and_leaves_the_run_alone(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run)
    words = ["eval", "finetune", str(run), "--data", "digits", "--labels", "10-per-class"]
    words += ["--epochs", "10", "--json"]
    printed = []
    for _ in range(2):
        assert run_command(words) == 0
        printed.append(numbers(capsys.readouterr().out))
    assert printed[0] == printed[1]
    found = printed[0]
    assert found["protocol"] == "finetune"
    assert (found["n_train"], found["n_test"], found["batch_size"]) == (100, 500, 100)
    assert found["top5"] >= found["top1"] > 0.25  # of ten classes
    assert 0 < found["scratch_top1"] < 1
    after = contents(run)
    assert {path: after[path] for path in before} == before
    assert [path for path in after if path not in before] == [Path(found["manifest"])]
    assert Path(found["manifest"]).parent == run / "finetune"


def test_its_manifest_given_back_gives_the_same_result(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"epochs": 2, "scratch": False}
    drawn = wcl.evaluate(run, "finetune", "digits", labels="1%", seed=3, **options)
    listed = wcl.evaluate(
        run, "finetune", "digits", labels=drawn.details["manifest"], seed=3, **options
    )
    assert listed.score == drawn.score
    assert "manifest" not in listed.details
    assert "scratch_top1" not in drawn.details
    assert capsys.readouterr().err == ""


def test_an_encoder_keeps_its_weights_and_a_file_leaves_nothing(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "alone" / "encoder.safetensors"
    file.parent.mkdir()
    file.write_bytes((run / "encoder.safetensors").read_bytes())
    encoder = load(file)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    for start in ("pool", "projection"):
        wcl.evaluate(encoder, "finetune", "digits", labels="1%", epochs=1, start=start)
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not encoder.training
    assert list(file.parent.iterdir()) == [file]


def test_the_classifier_starts_at_the_pool_or_behind_the_first_layer_of_g(run: Path) -> None:
    encoder = load(run)
    images = encoder.normalize(torch.randint(0, 256, (4, 1, 32, 32), dtype=torch.uint8))
    pool, projection = (
        build_network(encoder, start, 10, seed=0).eval() for start in ("pool", "projection")
    )
    linear, norm, *_ = encoder.heads["g"].children()
    with torch.no_grad():
        h = encoder(images)["h"]
        first = F.relu(norm(linear(h)))
        for network, inputs in ((pool, h), (projection, first)):
            body, classifier = network
            assert isinstance(classifier, nn.Linear)
            assert classifier.weight.shape == (10, inputs.shape[1])
            torch.testing.assert_close(body(images), inputs)
            torch.testing.assert_close(
                network(images), inputs @ classifier.weight.T + classifier.bias
            )
    own = {parameter.data_ptr() for parameter in encoder.parameters()}
    assert not own & {parameter.data_ptr() for parameter in projection.parameters()}


def test_an_encoder_without_g_has_no_projection_to_start_from(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1, loss={"nce": 0.0})
    assert "g" not in load(run).heads
    with pytest.raises(InputError, match="from: the run has no head g"):
        wcl.evaluate(run, "finetune", "digits", labels="1%", start="projection")


def test_all_parts_are_trained_as_the_protocol_says(run: Path) -> None:
    """Against a hand-written loop: SGD, momentum 0.9, two rates times batch/256, cosine to zero."""
    encoder = load(run)
    source = open_source("digits")
    chosen = subset(source, labeled_rows(source, "2-per-class", seed=0))
    loader = Loader(chosen, 10, 0, torch.device("cpu"))
    maker = crop_and_flip(encoder)
    network, expected = (build_network(encoder, "projection", 10, seed=0) for _ in range(2))
    objective = true_labels(chosen, encoder.device)
    fit(network, objective, (0.2, 0.7), loader, maker, 2, "fine-tuning")

    assert chosen.labels is not None
    parameters = list(expected.parameters())
    rates = [0.2] * (len(parameters) - 2) + [0.7] * 2
    momentum = [torch.zeros_like(p) for p in parameters]
    batches = [b for epoch in range(2) for b in loader.epoch(epoch, [ViewSpec(maker, 1)])]
    expected.train()
    for step, batch in enumerate(batches):
        loss = F.cross_entropy(expected(batch.views[0][0]), chosen.labels[batch.rows])
        cosine = 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / 4)))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, m, g, rate in zip(parameters, momentum, gradients, rates, strict=True):
                m.mul_(0.9).add_(g)
                p.sub_(rate * 10 / 256 * cosine * m)
    assert len(batches) == 4
    for (name, found), wanted in zip(
        network.state_dict().items(), expected.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, msg=name)


def test_scratch_begins_anew_and_depends_on_the_seed_alone(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "other", epochs=1)
    scores = [
        wcl.evaluate(which, "finetune", "digits", labels="1%", epochs=3, seed=seed).details[
            "scratch_top1"
        ]
        for which, seed in ((run, 0), (other, 0), (run, 1))
    ]
    assert scores[0] == scores[1] != scores[2]


def test_photos_are_fine_tuned_without_those_that_cannot_be_read(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    (data / "cat" / "004.jpg").write_bytes(b"")
    found = wcl.evaluate(
        run,
        "finetune",
        data,
        test_data=str(data),
        labels="100%",
        epochs=1,
        scratch=False,
        batch_size=5,
    )
    assert found.details["batch_size"] == 4  # five steps of 24 // 5 images
    assert (found.n_train, found.n_test) == (23, 23)


def test_labeled_images_that_cannot_be_read_at_all_are_an_error(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    run = photo_run(data, tmp_path / "run", epochs=1)
    for name in ("cat", "dog"):
        (data / name / "003.jpg").write_bytes(b"")
    names = tmp_path / "list.txt"
    names.write_text("cat/003.jpg\ndog/003.jpg\n")
    with pytest.raises(InputError, match="fewer than 2 images for fine-tuning can be read"):
        wcl.evaluate(run, "finetune", data, test_data=str(data), labels=str(names), epochs=1)


@pytest.mark.parametrize(("lr", "epochs"), [(1e32, 5), (1e32, 1)])
def test_a_rate_that_blows_up_is_a_failed_run(lr: float, epochs: int, run: Path) -> None:
    """Even if only the last step does, which no loss comes after."""
    with pytest.raises(RunError) as failed:
        wcl.evaluate(run, "finetune", "digits", labels="1%", lr=lr, epochs=epochs)
    assert f"learning rates of 0.05 and {lr:g}" in str(failed.value)
    assert "diverged; use smaller ones" in str(failed.value)


@pytest.mark.parametrize("labeled", range(2, 40))
def test_batches_are_no_larger_than_asked_and_leave_few_images_over(labeled: int) -> None:
    for most in range(2, 45):
        batch = batch_size_for(labeled, most)
        assert 2 <= batch <= max(most, 2)
        steps = labeled // batch
        assert labeled - steps * batch <= max(steps, labeled // most)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "labels: give a percentage"),
        (["--labels", "1"], "image names, not 1"),
        (["--labels", "nowhere.txt"], "image names, not nowhere.txt"),
        (["--labels", "200-per-class"], "has only 1"),
        (["--labels", "1-per-class", "--classes", "1"], "at least 2 labeled images"),
        (["--labels", "1%", "--from", "g"], "g is not one of pool, projection"),
        (["--labels", "1%", "--from=g"], "g is not one of pool, projection"),
        (["--labels", "1%", "--batch_size", "1"], "batch_size: must be at least 2"),
        (["--labels", "1%", "--epochs", "-1"], "epochs: must be at least 0"),
        (["--labels", "1%", "--lr", "0"], "lr: must be more than 0"),
        (["--labels", "1%", "--encoder_lr", ".inf"], "encoder_lr: must be a finite number"),
        (["--labels", "1%", "--scratch", "no way"], "--scratch"),
    ],
)
def test_bad_requests_are_one_line(
    words: list[str], says: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["eval", "finetune", str(run), "--data", "digits", *words]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("wcl: ")
    assert complaint.count("\n") == 1
    assert says in complaint


def test_few_labels_get_more_passes_so_that_there_are_steps_enough(run: Path) -> None:
    found = wcl.evaluate(run, "finetune", "digits", labels="1-per-class", scratch=False)
    assert (found.n_train, found.details["batch_size"], found.details["epochs"]) == (10, 10, 100)
    found = wcl.evaluate(
        run, "finetune", "digits", labels="1-per-class", scratch=False, batch_size=2
    )
    assert (found.details["batch_size"], found.details["epochs"]) == (2, 60)


def test_from_is_another_word_for_start(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "finetune", str(run), "--data", "digits", "--labels", "1%", "--json"]
    words += ["--epochs", "1", "--scratch", "false", "--from", "projection"]
    assert run_command(words) == 0
    assert numbers(capsys.readouterr().out)["start"] == "projection"


def test_its_help_shows_percentages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["eval", "finetune", "--help"]) == 0
    assert "(10%)" in capsys.readouterr().out
