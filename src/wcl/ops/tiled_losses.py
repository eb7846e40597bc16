"""Log-sums of exponentials of inner products, a tile of the products at a time.

The denominators of the contrastive losses run over all pairs of rows. The matrix of those pairs is
never there as a whole: a tile of it is computed, used while it is in the cache, and computed again
for the gradient. What is kept between the two is of the size of the rows.

Neither function can be differentiated twice: a gradient that asks for it (`create_graph=True`) is a
RuntimeError.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Rows and columns of a tile. On a CPU the megabyte of a tile stays in cache, and few products below
# the diagonal are computed for nothing; larger and smaller ones are slower there. Elsewhere (not
# measured) only memory is a limit, and it is starting work that costs.
_SIDE_ON_CPU, _SIDE_ELSEWHERE = 512, 8192
# Columns beside a tile: as few as keep its rows aligned.
_PADDING = 16


def log_sum_over_all(anchors: Tensor, keys: Tensor, itself: Tensor | None = None) -> Tensor:
    """For each anchor log Σ_k exp(anchor · key_k), for products of any size.

    Args:
        anchors: (n, D) rows.
        keys: (N, D) rows.
        itself: (n,) for each anchor the key that it is, which is left out; None to take all.

    Returns:
        (n,) numbers.
    """
    log_sum: Tensor = _OverAll.apply(anchors, keys, itself)  # type: ignore[no-untyped-call]
    return log_sum


def log_sum_over_others(rows: Tensor, bound: float) -> Tensor:
    """For each row i log Σ_{k≠i} exp(row_i · row_k).

    The products are symmetric: those above the diagonal are enough for the sums and for the
    gradient, so this takes half the time of `log_sum_over_all` with the rows as anchors and keys.

    Args:
        rows: (N, D) rows.
        bound: the products are within ± this.

    Returns:
        (N,) numbers.
    """
    if bound > 0.45 * math.log(torch.finfo(rows.dtype).max):
        # A row and a column have no shift in common that would keep their exponentials in range.
        return log_sum_over_all(rows, rows, torch.arange(len(rows), device=rows.device))
    log_sum: Tensor = _OverOthers.apply(rows)  # type: ignore[no-untyped-call]
    return log_sum


class _OverAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchors: Tensor, keys: Tensor, itself: Tensor | None) -> Tensor:
        log_sum = anchors.new_full((len(anchors),), -math.inf)
        for here, _, tile in _tiles(anchors, keys, itself):
            log_sum[here] = torch.logaddexp(log_sum[here], tile.logsumexp(dim=1))
        ctx.save_for_backward(anchors, keys, itself, log_sum)
        return log_sum

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        _refuse_to_be_differentiated()
        anchors, keys, itself, log_sum = ctx.saved_tensors
        of_anchors, of_keys, _ = ctx.needs_input_grad
        to_anchors = torch.zeros_like(anchors) if of_anchors else None
        to_keys = torch.zeros_like(keys) if of_keys else None
        weighted = anchors * gradient[:, None]
        for here, there, tile in _tiles(anchors, keys, itself):
            share = tile.sub_(log_sum[here, None]).exp_()
            if to_anchors is not None:
                to_anchors[here].addmm_(share, keys[there])
            if to_keys is not None:
                to_keys[there].addmm_(share.T, weighted[here])
        if to_anchors is not None:
            to_anchors *= gradient[:, None]
        return to_anchors, to_keys, None


class _OverOthers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        total = rows.new_zeros(len(rows))
        for here, there, tile in _exponentials_above_diagonal(rows):
            total[here] += tile.sum(dim=1)
            if here != there:
                total[there] += tile.sum(dim=0)
        log_sum = total.log()
        ctx.save_for_backward(rows, log_sum)
        return log_sum

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        _refuse_to_be_differentiated()
        rows, log_sum = ctx.saved_tensors
        weight = gradient * (-log_sum).exp()
        to_rows = torch.zeros_like(rows)
        for here, there, tile in _exponentials_above_diagonal(rows):
            # The pair counts in the sums of both of its rows.
            tile *= weight[here, None] + weight[there]
            to_rows[here].addmm_(tile, rows[there])
            if here != there:
                to_rows[there].addmm_(tile.T, rows[here])
        return to_rows


def _refuse_to_be_differentiated() -> None:
    # torch's `once_differentiable` lets this pass where the incoming gradient is a constant, as it
    # is here: second derivatives would lack a term, and nobody would know.
    if torch.is_grad_enabled():
        raise RuntimeError("the gradient of this loss cannot be differentiated (create_graph=True)")


def _tiles(
    anchors: Tensor, keys: Tensor, itself: Tensor | None
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Slices of the anchors and of the keys, and their products, −∞ where the two are one.

    The tensor is the same every time and may be written to.
    """
    side = _side(anchors)
    memory = anchors.new_empty(min(side, len(anchors)), min(side, len(keys)) + _PADDING)
    for here in _slices(len(anchors), side):
        for there in _slices(len(keys), side):
            rows, columns = here.stop - here.start, there.stop - there.start
            tile = memory[:rows, :columns]
            torch.mm(anchors[here], keys[there].T, out=tile)
            if itself is not None:
                # An anchor whose own key is in another tile masks a column of the padding: only
                # the device need know which anchors those are, and nothing waits for it.
                column = itself[here] - there.start
                elsewhere = (column < 0) | (column >= columns)
                column = column.masked_fill(elsewhere, memory.shape[1] - 1)
                memory[:rows].scatter_(1, column[:, None], -math.inf)
            yield here, there, tile


def _exponentials_above_diagonal(rows: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Slices of the rows, and exp of their products with each other, 0 for a row with itself.

    Of tiles that mirror each other only one comes. The tensor is the same every time and may be
    written to.
    """
    side = _side(rows)
    memory = rows.new_empty(min(side, len(rows)), min(side, len(rows)))
    slices = list(_slices(len(rows), side))
    for number, here in enumerate(slices):
        for there in slices[number:]:
            tile = memory[: here.stop - here.start, : there.stop - there.start]
            torch.mm(rows[here], rows[there].T, out=tile)
            tile.exp_()
            if here == there:
                tile.fill_diagonal_(0)
            yield here, there, tile


def _slices(count: int, side: int) -> Iterator[slice]:
    for start in range(0, count, side):
        yield slice(start, min(start + side, count))


def _side(rows: Tensor) -> int:
    return _SIDE_ON_CPU if rows.device.type == "cpu" else _SIDE_ELSEWHERE
