"""Batch norm over the images of all processes, and batch norm with frozen running statistics."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from wcl.distributed.world import World


def synchronize_batch_norm(network: nn.Module, world: World, device: torch.device) -> None:
    """Replace the batch norm layers of a network by torch's synchronized ones, on several GPUs.

    torch has none for other devices; there `SynchronizedBatchNorm` is used instead.
    """
    if world.size > 1 and device.type == "cuda":
        from timm.layers.norm_act import convert_sync_batchnorm

        convert_sync_batchnorm(network)


class SynchronizedBatchNorm(TorchFunctionMode):
    """Context in which batch norms in training mode use the statistics of all processes.

    It intercepts the function that all batch norm layers call, so it works for any network and
    changes neither the layers nor the names of their weights.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if function is F.batch_norm:
            return self._batch_norm(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _batch_norm(
        self,
        rows: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return F.batch_norm(rows, running_mean, running_var, weight, bias, False, 0.0, eps)
        mean, var, count = self._statistics(rows.detach())
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            unbiased = var * (count / (count - 1).clamp(min=1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
        scale = (var + eps).rsqrt()
        normalized: Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
            rows, weight, bias, mean, scale, count, self._world
        )
        return normalized

    def _statistics(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute each channel's mean and variance and the number of values on all processes."""
        wide = rows.to(_statistics_dtype(rows.dtype))
        channels = rows.shape[1]
        own = wide.new_zeros(2 * channels + 1)
        own[-1] = count = rows.numel() // channels
        if count:
            var, mean = torch.var_mean(wide, dim=_reduced_dims(rows), correction=0)
            own[:channels], own[channels:-1] = mean, var
        gathered = self._world.all_gather(own[None])
        means, variances, counts = gathered.split([channels, channels, 1], dim=1)
        total = counts.sum()
        mean = (counts * means).sum(dim=0) / total
        # The variance within each process, and that of the processes' means.
        var = (counts * (variances + (means - mean).square())).sum(dim=0) / total
        return mean, var, total


class _Normalize(torch.autograd.Function):
    """Compute (rows − mean) · scale · weight + bias with the mean and scale of all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        scale: Tensor,
        count: Tensor,
        world: World,
    ) -> Tensor:
        ctx.save_for_backward(rows, weight, mean, scale, count)
        ctx.world = world
        factor = scale if weight is None else scale * weight
        shift = -mean * factor if bias is None else bias - mean * factor
        normalized = rows.to(factor.dtype) * _per_channel(factor, rows) + _per_channel(shift, rows)
        return normalized.to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, mean, scale, count = ctx.saved_tensors
        gradient = gradients[0].to(scale.dtype)
        dims = _reduced_dims(rows)
        unit = (rows.to(scale.dtype) - _per_channel(mean, rows)) * _per_channel(scale, rows)
        own = torch.stack([gradient.sum(dim=dims), (gradient * unit).sum(dim=dims)])
        grad_mean, grad_scale = ctx.world.all_reduce_sum(own) / count
        grad_rows = gradient - _per_channel(grad_mean, rows) - unit * _per_channel(grad_scale, rows)
        factor = scale if weight is None else scale * weight
        grad_rows = (grad_rows * _per_channel(factor, rows)).to(rows.dtype)
        grad_bias, grad_weight = (
            sums if needed else None
            for sums, needed in zip(own, reversed(ctx.needs_input_grad[1:3]), strict=True)
        )
        return grad_rows, grad_weight, grad_bias, None, None, None, None


def _reduced_dims(rows: Tensor) -> list[int]:
    return [0, *range(2, rows.ndim)]


def _per_channel(values: Tensor, rows: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (rows.ndim - 2))


def _statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Keep running statistics unchanged while batch norms still normalize by their batch."""
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
