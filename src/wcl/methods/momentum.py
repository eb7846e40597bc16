"""Momentum encoders: a frozen copy of a network that follows it as a moving average."""

import copy
from typing import TypeVar

import torch
from torch import nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def frozen_copy(network: ModuleT) -> ModuleT:
    """Return a copy of a network that no gradient reaches."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def ema_update(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Move the teacher's parameters toward the student's: t ← m·t + (1 − m)·s.

    Running statistics of batch norm stay the teacher's own: its forward passes move them.
    """
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
