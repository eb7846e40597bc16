"""The loop as a whole: what a run leaves, exact resume, repeatability, health, bad images."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import wcl
from images import photo_folder
from runs import assert_same_run, metrics, photo_run, stopped_after, tiny_run, weights
from wcl.models.backbones import build_backbone
from wcl.models.encoder import weights_sha256
from wcl.system.errors import InputError, RunError
from wcl.system.run_folder import RunFolder


def test_a_run_leaves_what_the_design_says(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", log={"every": 2, "tensorboard": True})
    assert (run / "config.yaml").is_file()
    assert (run / "checkpoints" / "last.ckpt").is_file()
    assert (run / "encoder.safetensors").is_file()
    assert list(run.glob("events*"))
    lines = metrics(run)
    assert [line["step"] for line in lines if line["kind"] == "step"] == [2, 4, 6, 8]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [1, 2]


def test_an_epoch_reports_health_with_and_without_labels(tmp_path: Path) -> None:
    epoch = metrics(tiny_run(tmp_path / "run"))[-1]
    for name in ("loss", "nce", "swap", "rankme", "alignment", "uniformity", "collapsed"):
        assert isinstance(epoch[name], float), name
    for name in ("components", "purity", "pair_precision", "pair_recall", "collision_rate"):
        assert epoch[name] >= 0, name
    assert epoch["loss"] == pytest.approx(epoch["nce"] + 0.5 * epoch["swap"], rel=1e-5)


def test_an_unlabeled_folder_trains_and_reports_no_purity(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data", classes=("only",), each=16)
    epoch = metrics(photo_run(data, tmp_path / "run"))[-1]
    assert "components" in epoch
    assert "purity" not in epoch


def test_the_same_command_twice_gives_the_same_run(tmp_path: Path) -> None:
    assert_same_run(tiny_run(tmp_path / "a"), tiny_run(tmp_path / "b"))


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    a, b = tiny_run(tmp_path / "a", epochs=1), tiny_run(tmp_path / "b", epochs=1, seed=1)
    assert not torch.equal(weights(a)["heads.g.0.weight"], weights(b)["heads.g.0.weight"])


def test_the_written_config_repeats_the_run(tmp_path: Path) -> None:
    first = tiny_run(tmp_path / "a")
    second = wcl.pretrain(config=str(first / "config.yaml"), out=str(tmp_path / "b"))
    assert_same_run(first, second)


@pytest.mark.parametrize("steps", [1, 3, 4, 6, 8])
def test_a_run_stopped_after_any_step_resumes_exactly(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_run(tmp_path / "whole")
    with stopped_after(steps, monkeypatch):
        tiny_run(tmp_path / "parts")
    tiny_run(tmp_path / "parts", resume=True)
    assert_same_run(whole, tmp_path / "parts")


def test_who_calls_from_python_is_told_that_a_run_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it would take a run of half its epochs for the whole."""
    with stopped_after(3, monkeypatch), pytest.raises(KeyboardInterrupt):
        tiny_run(tmp_path / "run")
    assert wcl.load(tiny_run(tmp_path / "run", resume=True)).description.epoch == 2


def test_a_run_stopped_again_and_again_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_run(tmp_path / "whole", method="simclr")
    parts = tmp_path / "parts"
    for attempt in range(7):
        with stopped_after(1, monkeypatch):
            tiny_run(parts, method="simclr", resume=attempt > 0)
    tiny_run(parts, method="simclr", resume=True)
    assert_same_run(whole, parts)


def test_photos_resume_exactly_and_do_not_depend_on_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo_folder(tmp_path / "data")
    whole = photo_run(data, tmp_path / "whole", num_workers=0)
    with stopped_after(4, monkeypatch):
        photo_run(data, tmp_path / "parts", num_workers=2)
    photo_run(data, tmp_path / "parts", num_workers=1, resume=True)
    assert_same_run(whole, tmp_path / "parts")


def test_dropout_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that draw random numbers continue their stream."""

    def with_dropout(*args: object) -> torch.nn.Module:
        backbone = build_backbone(*args)  # type: ignore[arg-type]
        assert isinstance(backbone, torch.nn.Sequential)
        backbone.append(torch.nn.Dropout(0.5))
        return backbone

    monkeypatch.setattr(wcl.models.encoder, "build_backbone", with_dropout)
    whole = tiny_run(tmp_path / "whole")
    with stopped_after(3, monkeypatch):
        tiny_run(tmp_path / "parts")
    tiny_run(tmp_path / "parts", resume=True)
    assert_same_run(whole, tmp_path / "parts")


def test_ctrl_c_stops_with_a_checkpoint_that_resumes_exactly(tmp_path: Path) -> None:
    """The real signal to a real process."""
    out = tmp_path / "run"
    words = ["digits", "--limit", "128", "--batch_size", "32", "--epochs", "40", "--out", str(out)]
    words += ["--model.head_hidden_dim", "32", "--model.head_out_dim", "16", "--log.every", "1"]
    command = [sys.executable, "-m", "wcl", "pretrain", *words, "--log.tensorboard", "false"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "continue with: wcl pretrain" in said
    assert metrics(out)[-1]["step"] < 160
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    whole = tmp_path / "whole"
    words[words.index(str(out))] = str(whole)
    subprocess.run(
        [sys.executable, "-m", "wcl", "pretrain", *words, "--log.tensorboard", "false"],
        check=True,
        capture_output=True,
    )
    assert_same_run(out, whole)


def test_resume_needs_only_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tiny_run(tmp_path / "whole")
    with stopped_after(2, monkeypatch):
        tiny_run(tmp_path / "parts")
    wcl.pretrain(out=str(tmp_path / "parts"), resume=True)
    assert_same_run(whole, tmp_path / "parts")


def test_resume_refuses_other_settings_and_names_them(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    before = (run / "checkpoints" / "last.ckpt").read_bytes()
    with pytest.raises(InputError, match=r"optim\.lr"):
        tiny_run(run, epochs=1, resume=True, optim={"lr": 0.5})
    assert (run / "checkpoints" / "last.ckpt").read_bytes() == before


def test_resume_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run to resume"):
        tiny_run(tmp_path / "nothing", resume=True)


def test_a_run_that_died_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    whole, parts = tiny_run(tmp_path / "whole"), tiny_run(tmp_path / "parts")
    for checkpoint in (parts / "checkpoints").iterdir():
        checkpoint.unlink()
    tiny_run(parts, resume=True)
    assert_same_run(whole, parts)


def test_a_run_without_a_checkpoint_is_begun_again_with_its_own_settings(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    (run / "checkpoints" / "last.ckpt").unlink()
    with pytest.raises(InputError, match=r"optim\.lr=0\.002"):
        tiny_run(run, epochs=1, resume=True, optim={"lr": 0.5})


def test_an_encoder_that_was_lost_is_written_again_from_the_checkpoint(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "a")
    before = wcl.load(run)
    (run / "encoder.safetensors").unlink()
    wcl.pretrain(resume=True, out=str(run))
    after = wcl.load(run)
    assert after.description == before.description
    assert weights_sha256(after.state_dict()) == weights_sha256(before.state_dict())


def test_two_runs_cannot_train_into_one_folder(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    with RunFolder(run).locked(), pytest.raises(InputError, match="another process is training"):
        tiny_run(run, epochs=1, resume=True)
    assert tiny_run(run, epochs=1, resume=True) == run


def test_resume_refuses_images_that_are_not_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo_folder(tmp_path / "data")
    with stopped_after(1, monkeypatch):
        photo_run(data, tmp_path / "run")
    (data / "cat" / "000.jpg").rename(data / "cat" / "another.jpg")
    with pytest.raises(InputError, match=r"not those that the run started with.*data"):
        photo_run(data, tmp_path / "run", resume=True)


def test_images_none_of_which_can_be_read_stop_the_run(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data")
    for path in data.rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match=r"100% of its images cannot be read, see .*skipped\.txt"):
        photo_run(data, tmp_path / "run")


def test_knn_accuracy_of_unlabeled_data_is_refused_before_training(tmp_path: Path) -> None:
    data = photo_folder(tmp_path / "data", classes=("only",), each=16)
    with pytest.raises(InputError, match="has no labels"):
        photo_run(data, tmp_path / "run", log={"knn_every": 1, "tensorboard": False})
    photo_folder(tmp_path / "both" / "train")
    photo_folder(tmp_path / "both" / "test", classes=("only",), each=16)
    with pytest.raises(InputError, match=r"log__knn_every: .*test.*(no labels|no training)"):
        photo_run(tmp_path / "both", tmp_path / "run", log={"knn_every": 1, "tensorboard": False})
    assert not (tmp_path / "run").exists()


def test_knn_accuracy_that_fails_on_the_way_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise InputError("photos/test: none of the images asked for can be read")

    monkeypatch.setattr("wcl.evaluation.callback.evaluate", gone)
    run = tiny_run(tmp_path / "run", log={"knn_every": 1, "tensorboard": False})
    assert capsys.readouterr().err.count("photos/test: none of the images") == 2
    assert "knn_top1" not in metrics(run)[-1] and metrics(run)[-1]["epoch"] == 2


def test_each_loss_can_be_left_out(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1, loss={"swap": 0.0})
    assert "swap" not in metrics(run)[-1]
    assert tuple(wcl.load(run).heads) == ("g",)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    (run / "checkpoints" / "last.ckpt").write_bytes(content)
    with pytest.raises(InputError, match="not a checkpoint"):
        tiny_run(run, epochs=1, resume=True)


def test_a_checkpoint_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    trap = tmp_path / "trap"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(trap),)

    torch.save({"format": 1, "config": Evil()}, run / "checkpoints" / "last.ckpt")
    with pytest.raises(InputError, match="not a checkpoint"):
        tiny_run(run, epochs=1, resume=True)
    assert not trap.exists()


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="holds a run"):
        tiny_run(run)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_that_failed_in_its_first_steps_can_be_started_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = {"every": 10, "tensorboard": False}
    with pytest.raises(RunError, match="the loss is not finite"):
        tiny_run(tmp_path / "run", log=log, optim={"name": "sgd", "lr": 1e18, "warmup_epochs": 0})
    bad_step = (tmp_path / "run" / "not_finite.pt").read_bytes()
    capsys.readouterr()
    run = tiny_run(tmp_path / "run", log=log)
    assert "starting anew" in capsys.readouterr().err
    assert_same_run(run, tiny_run(tmp_path / "other", log=log))
    assert (run / "not_finite.pt").read_bytes() == bad_step


def test_a_failed_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="timm has no model"):
        tiny_run(tmp_path / "run", model={"backbone": "resnet19"})
    assert not (tmp_path / "run").exists()


def test_one_bad_image_is_skipped_and_changes_no_other_sample(tmp_path: Path) -> None:
    good, bad = photo_folder(tmp_path / "good"), photo_folder(tmp_path / "bad")
    (bad / "cat" / "003.jpg").write_bytes((bad / "cat" / "003.jpg").read_bytes()[:200])
    batches = []
    for data in (good, bad):
        source = wcl.data.open_source(str(data))
        loader = wcl.data.loader.Loader(source, 8, 0, torch.device("cpu"), num_workers=1)
        maker = wcl.augment.ViewMaker(wcl.config.AugmentConfig(), 32)
        batches.append(list(loader.epoch(0, [wcl.data.views.ViewSpec(maker, 2)])))
    seen = 0
    for whole, part in zip(*batches, strict=True):
        keep = [i for i, index in enumerate(whole.index) if index != 3]
        seen += len(whole.index) - len(part.index)
        assert part.index.tolist() == whole.index[keep].tolist()
        torch.testing.assert_close(part.views[0], whole.views[0][:, keep], rtol=1e-4, atol=1e-5)
    assert seen == 1


def test_a_bad_image_is_named_in_the_log_and_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = photo_folder(tmp_path / "data")
    (data / "cat" / "003.jpg").write_bytes(b"")
    run = photo_run(data, tmp_path / "run", epochs=2)
    assert capfd.readouterr().err.count("003.jpg") == 1
    assert metrics(run)[-1]["skipped"] == 1


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"step \d+: the loss is not finite"):
        tiny_run(tmp_path / "run", epochs=20, optim={"name": "sgd", "lr": 1e18, "warmup_epochs": 0})


@pytest.mark.parametrize("heads", ["two", "shared"])
@pytest.mark.parametrize("nce", [0.0, 1.0])
def test_every_head_ablation_trains(heads: str, nce: float, tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1, loss={"heads": heads, "nce": nce})
    expected = {"swap", "nce"} if nce else {"swap"}
    assert expected == {"swap", "nce"} & metrics(run)[-1].keys()
    saved = wcl.load(run)
    assert ("g" in saved.heads, "phi" in saved.heads) == (
        heads == "shared" or bool(nce),
        heads == "two",
    )


def test_early_epochs_use_the_milder_augmentation(tmp_path: Path) -> None:
    plain = tiny_run(tmp_path / "plain", epochs=1)
    early = tiny_run(tmp_path / "early", epochs=1, mild_augment_epochs=1)
    assert metrics(plain)[-1]["loss"] != metrics(early)[-1]["loss"]


def test_knn_accuracy_is_logged_when_asked_for(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", log={"knn_every": 2, "tensorboard": False})
    epochs = [line for line in metrics(run) if line["kind"] == "epoch"]
    assert ["knn_top1" in line for line in epochs] == [False, True]


def test_learning_lowers_the_loss(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=12)
    losses = [line["loss"] for line in metrics(run) if line["kind"] == "epoch"]
    assert losses[-1] < losses[0] - 0.5
