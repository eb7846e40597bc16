"""The linear probe against a hand-written loop, and several learning rates in one pass."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import wcl
from runs import tiny_run
from wcl.evaluation.linear import fit
from wcl.evaluation.references import untrained_encoder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", epochs=8, limit=512)


@pytest.mark.parametrize("mode", ["fast", "paper"])
def test_linear_learns_and_repeats_exactly(mode: str, run: Path) -> None:
    results = [wcl.evaluate(run, "linear", "digits", mode=mode, epochs=8, lr=1.0) for _ in range(2)]
    assert results[0].top1 == results[1].top1 > 0.25
    assert results[0].details["top5"] >= results[0].top1


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_linear_layer_is_trained_as_the_protocol_says(nesterov: bool) -> None:
    """Against a hand-written loop: SGD, momentum 0.9, cosine from 0.1·batch/256, no decay."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 8, generator=generator)
    labels = torch.randint(0, 3, (64,), generator=generator)
    batches = [(inputs[:32], labels[:32]), (inputs[32:], labels[32:])]
    cpu = torch.device("cpu")
    layer, start = (
        fit(lambda epoch: iter(batches), 2, epochs, (8, 3), [0.1 * 32 / 256], 0, cpu, nesterov)[0]
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
        ahead = [g + 0.9 * m for g, m in zip(grads, momentum, strict=True)]  # Nesterov's
        update = ahead if nesterov else momentum
        weight = (weight - rate * update[0]).detach()
        bias = (bias - rate * update[1]).detach()
    torch.testing.assert_close(layer.weight.detach(), weight, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(layer.bias.detach(), bias, rtol=1e-5, atol=1e-6)


def test_a_sweep_of_rates_is_the_single_probes(run: Path) -> None:
    sweep = wcl.evaluate(run, "linear", "digits", lr=[0.1, 3.0], epochs=3)
    for row in sweep.details["sweep"]:
        alone = wcl.evaluate(run, "linear", "digits", lr=row["lr"], epochs=3)
        assert alone.top1 == row["top1"]
        assert alone.details["top5"] == row["top5"]
    assert sweep.top1 == sweep.details["sweep"][0]["top1"]


def test_the_option_reaches_the_optimizer(run: Path) -> None:
    plain, ahead = (
        wcl.evaluate(run, "linear", "digits", lr=3.0, epochs=1, nesterov=nesterov)
        for nesterov in (False, True)
    )
    assert (plain.details["nesterov"], ahead.details["nesterov"]) == (False, True)
    assert plain.top1 != ahead.top1


def test_a_reference_is_probed_at_its_best_rate(run: Path) -> None:
    untrained = untrained_encoder(wcl.load(run))
    at_rates = [
        wcl.evaluate(untrained, "linear", "digits", lr=lr, epochs=3, references=False).top1
        for lr in (0.1, 1.0, 10.0)
    ]
    beside = wcl.evaluate(run, "linear", "digits", lr=0.1, epochs=3).beside
    assert beside["untrained"] == pytest.approx(max(at_rates)) and max(at_rates) > at_rates[0]
