"""Optimizers, their parameter groups, and the learning-rate schedule."""

import math
from inspect import unwrap

import torch
from torch import nn
from torch.optim import Optimizer

from wcl.config import OptimConfig


class _NeverCompiled(Optimizer):
    """An optimizer without the wrappers that keep torch's compiler from optimizers.

    Their first call imports the compiler, which takes as long as importing torch.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class SGD(_NeverCompiled, torch.optim.SGD):
    """torch.optim.SGD without the compiler."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class AdamW(_NeverCompiled, torch.optim.AdamW):
    """torch.optim.AdamW without the compiler."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return two groups: matrices and kernels with weight decay, biases and norms without.

    Biases and the parameters of norm layers are those with at most one dimension. LARS applies no
    trust ratio to a group without decay either, as in the authors' code; the paper names no such
    exceptions.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, config: OptimConfig, lr: float) -> Optimizer:
    """Build LARS (trust coefficient 0.001), SGD or AdamW over `parameter_groups`."""
    groups = parameter_groups(model, config.weight_decay)
    if config.name == "lars":
        from timm.optim.lars import Lars  # timm takes a second, and other runs may do without it

        groups[0]["always_adapt"] = True  # otherwise timm drops the trust ratio if the decay is 0
        lars: Optimizer = Lars(groups, lr=lr, momentum=config.momentum, trust_coeff=0.001)
        return lars
    if config.name == "sgd":
        return SGD(groups, lr=lr, momentum=config.momentum)
    return AdamW(groups, lr=lr)


def peak_lr(config: OptimConfig, batch_size: int) -> float:
    """Compute the learning rate after warm-up.

    >>> peak_lr(OptimConfig(lr=0.25, lr_scaling="linear"), batch_size=512)
    0.5
    >>> peak_lr(OptimConfig(lr=0.075, lr_scaling="sqrt"), batch_size=4096)
    4.8
    """
    if config.lr_scaling == "linear":
        return config.lr * batch_size / 256
    if config.lr_scaling == "sqrt":
        return round(config.lr * math.sqrt(batch_size), 12)
    return config.lr


def lr_at(step: int, peak: float, warmup: int, total: int) -> float:
    """Compute the learning rate of a step: linear warm-up, then a half cosine to zero.

    Steps count from 0. The rate of the first is peak / warmup; that of the last is not yet zero.

    >>> [lr_at(step, 1.0, 2, 6) for step in (0, 1, 2, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def set_lr(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
