"""Batch norm over several processes against torch's own on all their rows."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from together import together
from wcl.distributed.batch_norm import SynchronizedBatchNorm
from wcl.distributed.world import World

# How many rows the first process has and how many the second.
SIZES = ((5, 3), (5, 0))
SHAPES = ((6,), (6, 4, 4))


def norm_and_rows(sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[nn.Module, Tensor]:
    norm = (nn.BatchNorm1d(6) if len(shape) == 1 else nn.BatchNorm2d(6)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(6, generator=generator))
    rows = torch.randn(sum(sizes), *shape, generator=generator, dtype=torch.float64)
    return norm, 3 * rows + 1


def normalize(norm: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
    rows = rows.clone().requires_grad_()
    out = norm(rows)
    (out.sin() * out).sum().backward()
    assert rows.grad is not None
    return out.detach(), rows.grad


def shared_out(world: World) -> list[Any]:
    found = []
    for sizes in SIZES:
        for shape in SHAPES:
            norm, rows = norm_and_rows(sizes, shape)
            with SynchronizedBatchNorm(world):
                out, flow = normalize(norm, rows.split(sizes)[world.rank])
                evaluated = norm.eval()(rows)
            grads = [p.grad for p in norm.parameters() if p.grad is not None]
            of_weights = [world.all_reduce_sum(grad) for grad in grads]
            found.append((out, flow, of_weights, dict(norm.named_buffers()), evaluated))
    return found


def test_rows_on_two_processes_are_normalized_like_all_of_them_on_one(tmp_path: Path) -> None:
    first, second = together(2, tmp_path, shared_out)
    cases = [(sizes, shape) for sizes in SIZES for shape in SHAPES]
    for (sizes, shape), here, there in zip(cases, first, second, strict=True):
        norm, rows = norm_and_rows(sizes, shape)
        out, flow = normalize(norm, rows)
        torch.testing.assert_close(torch.cat([here[0], there[0]]), out)
        torch.testing.assert_close(torch.cat([here[1], there[1]]), flow)
        for found, expected in zip(here[2], norm.parameters(), strict=True):
            torch.testing.assert_close(found, expected.grad)
        for process in (here, there):
            torch.testing.assert_close(process[3], dict(norm.named_buffers()))
            torch.testing.assert_close(process[4], norm.eval()(rows))
