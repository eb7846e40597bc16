"""Numbers that are not finite stop the run at their step; embeddings all alike are warned of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import DIGITS, finish, start
from PIL import Image

from built_methods import losses_of
from runs import CROPS, TINY, photo_run, stopped_after, tiny_run
from wcl.config.layering import settings
from wcl.data import limited, open_source
from wcl.data.loader import Loader
from wcl.methods import Losses, method_settings
from wcl.models.encoder import Encoder
from wcl.system.errors import RunError
from wcl.training import loop as train
from wcl.training.checkpoint import load_checkpoint, save_checkpoint
from wcl.training.optimizers import build_optimizer
from wcl.training.setup import build_method

SETTINGS: dict[str, Any] = {"crops": {**CROPS, "warmup": 1}}


def losses_of_the_kept_batch(run: Path) -> tuple[Losses, Encoder]:
    """What the kept views and weights give, computed again from the file alone."""
    kept = torch.load(run / "not_finite.pt", weights_only=True)
    config = settings("digits", {**TINY, **SETTINGS, "out": str(run)}, method_settings)
    source = limited(open_source(config.data), config.limit, config.seed)
    method = build_method(config, source, steps_per_epoch=4).train()
    method.load_state_dict(kept["method"])
    return losses_of(method, method.embed(kept["views"])), method.encoder


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_poisoned_weight_stops_the_run_at_the_next_step_with_what_reproduces_it(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embeddings are not finite then, and the loss is not."""
    run = tmp_path / "run"
    with stopped_after(6, monkeypatch):
        tiny_run(run, **SETTINGS)
    config = settings("digits", {**TINY, **SETTINGS, "out": str(run)}, method_settings)
    last = run / "checkpoints" / "last.ckpt"
    state = load_checkpoint(last, config)
    assert state is not None
    state["method"]["encoder.heads.g.0.weight"][3, 4] = value
    save_checkpoint(state, config, last)
    before = last.read_bytes()
    with pytest.raises(
        RunError, match=r"^step 7: the loss is not finite .*not_finite\.pt, the last"
    ):
        tiny_run(run, resume=True, **SETTINGS)
    assert last.read_bytes() == before
    kept = torch.load(run / "not_finite.pt", weights_only=True)
    assert (kept["step"], kept["epoch"]) == (7, 1)
    source = limited(open_source("digits"), TINY["limit"], 0)
    order = Loader(source, TINY["batch_size"], 0, torch.device("cpu")).order(1)
    assert kept["images"].tolist() == order[64:96].tolist()
    losses, _ = losses_of_the_kept_batch(run)
    assert not losses.total.isfinite()


def test_an_infinite_gradient_of_a_finite_loss_stops_the_run_with_what_reproduces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, steps = tmp_path / "run", 0

    def with_overflow(encoder: Encoder, *args: Any) -> Any:
        def overflow(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal steps
            steps += 1
            return gradient * float("inf") if steps == 6 else gradient

        next(encoder.parameters()).register_hook(overflow)
        return build_optimizer(encoder, *args)

    with monkeypatch.context() as patch:
        patch.setattr(train, "build_optimizer", with_overflow)
        with pytest.raises(RunError, match=r"^step 6: the gradient is not finite \(loss "):
            tiny_run(run, **SETTINGS)
    losses, encoder = losses_of_the_kept_batch(run)
    assert losses.total.isfinite()
    next(encoder.parameters()).register_hook(lambda gradient: gradient * float("inf"))
    losses.total.backward()
    assert not all(p.grad.isfinite().all() for p in encoder.parameters() if p.grad is not None)
    tiny_run(run, resume=True, **SETTINGS)  # without the overflow


def test_weights_that_a_step_spoiled_never_reach_a_checkpoint(tmp_path: Path) -> None:
    """The loss of the only step of the epoch is a number; its update is not."""
    run = tmp_path / "run"
    optim = {"name": "sgd", "lr": 1e38, "lr_scaling": "constant", "warmup_epochs": 0}
    with pytest.raises(
        RunError, match=r"^step 1: \S+ is not finite after it; .* there is no good checkpoint"
    ):
        tiny_run(run, epochs=1, limit=32, optim=optim)
    assert not list((run / "checkpoints").iterdir())
    assert not (run / "encoder.safetensors").exists()
    kept = torch.load(run / "not_finite.pt", weights_only=True)
    assert not all(bool(value.isfinite().all()) for value in kept["method"].values())


def test_a_collapse_is_warned_of_in_its_epoch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All images are one, and the augmentations leave it as it is."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(16):
        Image.fromarray(np.full((40, 40, 3), 99, np.uint8)).save(photos / f"{number}.png")
    plain = {"jitter": 0.0, "grayscale": 0.0, "blur": 0.0, "scale": [1.0, 1.0]}
    photo_run(photos, tmp_path / "run", augment=plain, epochs=1, num_workers=0)
    assert "the embeddings have collapsed" in capfd.readouterr().err


def test_a_run_that_learns_is_not_called_collapsed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_run(tmp_path / "run")
    assert "collapsed" not in capfd.readouterr().err


@pytest.mark.soak
def test_of_two_processes_one_tells_of_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [
        "--devices=2",
        "--timeout_minutes=2",
        "--epochs=20",
        "--optim.name=sgd",
        "--optim.lr=1e18",
    ]
    process = start(["pretrain", *DIGITS, *words, "--optim.warmup_epochs=0", f"--out={out}"])
    status, said = finish(process)
    assert status == 1, said
    told = [line for line in said.splitlines() if line.startswith("wcl:")]
    assert len(told) == 1 and "not finite" in told[0] and "Traceback" not in said, said
    assert (out / "not_finite.pt").is_file()
