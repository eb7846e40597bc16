"""The probe of a step: what it counts, and that it changes nothing."""

from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric

from runs import assert_same_run, prepared, tiny_run
from wcl.distributed.world import World
from wcl.methods import METHODS
from wcl.system.errors import InputError
from wcl.training import estimate, loop
from wcl.training.footprint import (
    KeptTensors,
    gradient_bytes,
    optimizer_state,
    saved_for_backward,
    weights_of,
)
from wcl.training.optimizers import build_optimizer
from wcl.training.probe import probe_step
from wcl.training.setup import TrainingSetup
from wcl.training.step import MultiViewModel, gradient_step

CPU = torch.device("cpu")


def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


def kept_by_a_step(setup: TrainingSetup) -> int:
    """Bytes of a real step, counted while it is taken."""
    model, optimizer = fabric().setup(
        MultiViewModel(setup.method, World()), build_optimizer(setup.method, setup.config.optim, 0)
    )
    model.train()
    batch = next(setup.loader.epoch(0, setup.view_specs(0)))
    shard = setup.sharding.shard(batch.global_index, batch.positions, CPU)
    with saved_for_backward() as kept:
        gradient_step(fabric(), model, setup.method, batch.views, shard, World())
    optimizer.step()
    for tensor in (*weights_of(setup.method), *optimizer_state(optimizer), *batch.views):
        kept.add(tensor)
    return kept.nbytes() + gradient_bytes(setup.method)


@pytest.mark.parametrize("method", ["simclr", "wcl", "moco"])
def test_few_images_tell_the_bytes_of_a_whole_step(method: str, tmp_path: Path) -> None:
    setup = prepared(tmp_path / "run", method=method, batch_size=64)
    cost = probe_step(setup, fabric(), timed=False)
    assert cost is not None and cost.seconds == 0
    counted = cost.weights + cost.updates + cost.activations
    assert counted == pytest.approx(kept_by_a_step(setup), rel=0.05)


def test_micro_batches_keep_fewer_activations(tmp_path: Path) -> None:
    whole, parts = (
        probe_step(prepared(tmp_path / "run", micro_batch_size=size), fabric(), timed=True)
        for size in (0, 8)
    )
    assert whole is not None and parts is not None and whole.seconds > 0
    assert parts.activations < 0.5 * whole.activations
    assert parts.updates == whole.updates


@pytest.mark.parametrize("method", METHODS)
def test_a_probe_leaves_the_method_and_the_random_numbers_alone(
    method: str, tmp_path: Path
) -> None:
    setup = prepared(tmp_path / "run", method=method)
    before = {name: values.clone() for name, values in setup.method.state_dict().items()}
    others = {name: value for name, value in vars(setup.method).items() if name[:1] == "_"}
    generator = torch.get_rng_state()
    assert probe_step(setup, fabric(), timed=True) is not None
    assert torch.equal(torch.get_rng_state(), generator)
    after = setup.method.state_dict()
    assert all(torch.equal(values, after[name]) for name, values in before.items())
    assert all(vars(setup.method)[name] is value for name, value in others.items())
    assert all(parameter.grad is None for parameter in setup.method.parameters())


def test_a_run_is_the_same_without_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_probe = tiny_run(tmp_path / "with", method="moco")
    monkeypatch.setattr(loop, "check_resources", lambda *_: None)
    assert_same_run(with_probe, tiny_run(tmp_path / "without", method="moco"))


def test_a_run_that_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "available_memory", lambda: 10**6)
    with pytest.raises(InputError, match=r"needs about .*only .*try .*batch_size"):
        tiny_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tensors_that_share_memory_count_once() -> None:
    rows = torch.zeros(10, 4)
    kept = KeptTensors([rows, rows[2:], torch.zeros(3)])
    assert kept.nbytes() == rows.nbytes + 12
    assert kept.nbytes(besides=KeptTensors([rows])) == 12
