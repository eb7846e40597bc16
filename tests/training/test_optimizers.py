"""What is decayed, what LARS does in a step, and the learning rate of every step."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from wcl.config import ModelConfig, OptimConfig
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.training.optimizers import (
    SGD,
    AdamW,
    build_optimizer,
    lr_at,
    parameter_groups,
    peak_lr,
    set_lr,
)


def tensors(group: dict[str, object]) -> list[Tensor]:
    found = group["params"]
    assert isinstance(found, list)
    return found


def models() -> dict[str, nn.Module]:
    import timm

    encoder = Description(
        ModelConfig("resnet_small", "cifar", head_layers=3, head_hidden_dim=16, head_out_dim=8),
        ("g", "phi"),
        3,
        32,
        (0.5, 0.5, 0.5),
        (0.25, 0.25, 0.25),
    )
    return {
        "resnet18": timm.create_model("resnet18", num_classes=10),
        "resnet50": timm.create_model("resnet50", num_classes=10),
        "encoder": Encoder(encoder),
    }


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "encoder"])
def test_norms_and_biases_and_nothing_else_go_without_decay(name: str) -> None:
    model = models()[name]
    decayed, spared = parameter_groups(model, 0.5)
    norms = [m for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    expected = {id(p) for norm in norms for p in norm.parameters()}
    expected |= {id(p) for key, p in model.named_parameters() if key.endswith("bias")}
    downsampled = {
        id(p)
        for key, p in model.named_parameters()
        if "downsample.1" in key  # a norm in timm
    }
    assert downsampled
    assert downsampled <= expected
    assert {id(p) for p in tensors(spared)} == expected
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.5, 0.0)
    everything = [id(p) for p in tensors(decayed) + tensors(spared)]
    assert sorted(everything) == sorted(id(p) for p in model.parameters())


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    decayed, spared = parameter_groups(model, 0.1)
    assert [p.shape for p in tensors(decayed) + tensors(spared)] == [(1, 3), (1,)]


def gradients(step: int, model: nn.Linear) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    draws = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in model.parameters()]
    return draws[0], draws[1]


@pytest.mark.parametrize("weight_decay", [1e-6, 0.3])
def test_lars_steps_are_the_formula(weight_decay: float) -> None:
    model = nn.Linear(5, 4).double()
    config = OptimConfig(name="lars", momentum=0.9, weight_decay=weight_decay)
    optimizer = build_optimizer(model, config, lr=99.0)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    weight_velocity, bias_velocity = torch.zeros_like(weight), torch.zeros_like(bias)
    for step, rate in enumerate([0.1, 0.7, 0.4, 0.2]):
        weight_gradient, bias_gradient = gradients(step, model)
        model.weight.grad, model.bias.grad = weight_gradient.clone(), bias_gradient.clone()
        set_lr(optimizer, rate)
        optimizer.step()

        length, slope = weight.norm(), weight_gradient.norm()
        trust = 0.001 * length / (slope + weight_decay * length)
        weight_velocity = 0.9 * weight_velocity + trust * (weight_gradient + weight_decay * weight)
        weight = weight - rate * weight_velocity
        bias_velocity = 0.9 * bias_velocity + bias_gradient
        bias = bias - rate * bias_velocity
        torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(model.bias.detach(), bias, rtol=1e-12, atol=1e-12)


def test_sgd_steps_are_the_formula() -> None:
    model = nn.Linear(5, 4).double()
    config = OptimConfig(name="sgd", momentum=0.8, weight_decay=0.1)
    optimizer = build_optimizer(model, config, lr=0.5)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    weight_velocity, bias_velocity = torch.zeros_like(weight), torch.zeros_like(bias)
    for step in range(3):
        weight_gradient, bias_gradient = gradients(step, model)
        model.weight.grad, model.bias.grad = weight_gradient.clone(), bias_gradient.clone()
        optimizer.step()
        weight_velocity = 0.8 * weight_velocity + weight_gradient + 0.1 * weight
        bias_velocity = 0.8 * bias_velocity + bias_gradient
        weight, bias = weight - 0.5 * weight_velocity, bias - 0.5 * bias_velocity
        torch.testing.assert_close(model.weight.detach(), weight)
        torch.testing.assert_close(model.bias.detach(), bias)


def test_the_first_step_of_adamw_decays_weights_and_spares_biases() -> None:
    model = nn.Linear(5, 4).double()
    optimizer = build_optimizer(model, OptimConfig(name="adamw", weight_decay=0.5), lr=0.01)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    model.weight.grad, model.bias.grad = gradients(0, model)
    optimizer.step()
    moved = [0.01 * p.grad.sign() for p in (model.weight, model.bias) if p.grad is not None]
    torch.testing.assert_close(
        model.weight.detach(), weight * (1 - 0.01 * 0.5) - moved[0], rtol=1e-6, atol=1e-8
    )
    torch.testing.assert_close(model.bias.detach(), bias - moved[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_optimizers_are_those_of_torch_bit_by_bit_also_after_loading_their_state(name: str) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {"weight_decay": 0.1}
    trained = []
    for optimizer_class in ({"SGD": SGD, "AdamW": AdamW}[name], getattr(torch.optim, name)):
        torch.manual_seed(0)
        model = nn.Linear(5, 4)
        optimizer = optimizer_class(model.parameters(), lr=0.1, **options)
        for step in range(4):
            if step == 2:
                state = optimizer.state_dict()
                optimizer = optimizer_class(model.parameters(), lr=0.3, **options)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            assert model.weight.grad is None
            model.weight.grad, model.bias.grad = gradients(step, model)
            optimizer.step()
        assert not optimizer.param_groups[0]["differentiable"]
        trained.append(model)
    assert trained[0].weight.equal(trained[1].weight)
    assert trained[0].bias.equal(trained[1].bias)


@pytest.mark.parametrize(
    ("lr", "lr_scaling", "batch_size", "peak"),
    [
        (0.25, "linear", 64, 0.0625),
        (0.25, "linear", 128, 0.125),
        (0.25, "linear", 256, 0.25),
        (0.075, "sqrt", 2048, 0.075 * math.sqrt(2048)),
        (0.075, "sqrt", 4096, 4.8),
        (0.3, "constant", 4096, 0.3),
    ],
)
def test_peak_rates_are_those_of_the_paper(
    lr: float, lr_scaling: str, batch_size: int, peak: float
) -> None:
    config = OptimConfig(lr=lr, lr_scaling=lr_scaling)  # type: ignore[arg-type]
    assert peak_lr(config, batch_size) == pytest.approx(peak, rel=1e-10)


@given(st.integers(0, 40), st.integers(1, 120), st.floats(1e-3, 10))
@settings(deadline=None, max_examples=60)
def test_the_schedule_is_the_formula(warmup: int, cosine: int, peak: float) -> None:
    total = warmup + cosine
    rates = [lr_at(step, peak, warmup, total) for step in range(total)]
    expected = [peak * (step + 1) / warmup for step in range(warmup)]
    expected += [peak * math.cos(math.pi / 2 * done / cosine) ** 2 for done in range(cosine)]
    assert rates == pytest.approx(expected, rel=1e-9)
    assert max(rates) == pytest.approx(peak)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(rate > 0 for rate in rates)


def test_the_schedule_starts_small_reaches_the_peak_and_ends_near_zero() -> None:
    rates = [lr_at(step, 2.0, 10, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == rates[10] == 2.0
    assert 0 < rates[-1] < 1e-4


def test_without_warm_up_the_first_step_is_at_the_peak() -> None:
    assert lr_at(0, 0.7, 0, 50) == 0.7


@pytest.mark.parametrize(("warmup", "total"), [(5, 5), (8, 5)])
def test_a_run_shorter_than_its_warm_up_only_warms_up(warmup: int, total: int) -> None:
    rates = [lr_at(step, 1.0, warmup, total) for step in range(total)]
    assert rates == pytest.approx([(step + 1) / warmup for step in range(total)])


def test_set_rate_reaches_every_group() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2), OptimConfig(), lr=1.0)
    set_lr(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
