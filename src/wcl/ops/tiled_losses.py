"""Log-sum-exp of inner products, one tile of the product matrix at a time.

The denominators of the contrastive losses run over all pairs of rows. The matrix of pairs is never
held as a whole: a tile is computed, used while it is in the cache, and computed again for the
gradient. Between the two passes, only memory of the size of the rows is kept.

Neither function can be differentiated twice: `create_graph=True` raises a RuntimeError.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Rows and columns of a tile. On a CPU, a tile of one megabyte stays in the cache, and few products
# below the diagonal are wasted; other sizes are slower. Elsewhere (not measured), large tiles save
# kernel launches, and memory is the limit.
_SIDE_ON_CPU, _SIDE_ELSEWHERE = 512, 8192
# Extra columns beside a tile, as few as keep its rows aligned.
_PADDING = 16


def log_sum_over_all(anchors: Tensor, keys: Tensor, excluded: Tensor | None = None) -> Tensor:
    """Compute log Σ_k exp(anchor · key_k) for each anchor, for products of any magnitude.

    Args:
        anchors: (n, D) rows.
        keys: (N, D) rows.
        excluded: (n,) or (n, m), for each anchor the keys that are excluded, such as itself; −1
            for none. None to include all keys. At least one key must remain.

    Returns:
        (n,) numbers.
    """
    if excluded is not None and excluded.ndim == 1:
        excluded = excluded[:, None]
    log_sum: Tensor = _OverAll.apply(anchors, keys, excluded)  # type: ignore[no-untyped-call]
    return log_sum


def log_sum_over_others(rows: Tensor, bound: float) -> Tensor:
    """Compute log Σ_{k≠i} exp(row_i · row_k) for each row i.

    The products are symmetric: those above the diagonal suffice for the sums and the gradient, so
    this takes half the time of `log_sum_over_all` with the rows as anchors and keys.

    Args:
        rows: (N, D) rows.
        bound: upper bound of the absolute products.

    Returns:
        (N,) numbers.
    """
    if bound > 0.45 * math.log(torch.finfo(rows.dtype).max):
        # No common shift would keep the exponentials of both a row and a column in range.
        return log_sum_over_all(rows, rows, torch.arange(len(rows), device=rows.device))
    log_sum: Tensor = _OverOthers.apply(rows)  # type: ignore[no-untyped-call]
    return log_sum


class _OverAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchors: Tensor, keys: Tensor, excluded: Tensor | None) -> Tensor:
        log_sum = anchors.new_full((len(anchors),), -math.inf)
        for i, _, tile in _tiles(anchors, keys, excluded):
            log_sum[i] = torch.logaddexp(log_sum[i], tile.logsumexp(dim=1))
        ctx.save_for_backward(anchors, keys, excluded, log_sum)
        return log_sum

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        _refuse_double_backward()
        anchors, keys, excluded, log_sum = ctx.saved_tensors
        of_anchors, of_keys, _ = ctx.needs_input_grad
        to_anchors = torch.zeros_like(anchors) if of_anchors else None
        to_keys = torch.zeros_like(keys) if of_keys else None
        weighted = anchors * gradient[:, None]
        for i, j, tile in _tiles(anchors, keys, excluded):
            softmax = tile.sub_(log_sum[i, None]).exp_()
            if to_anchors is not None:
                to_anchors[i].addmm_(softmax, keys[j])
            if to_keys is not None:
                to_keys[j].addmm_(softmax.T, weighted[i])
        if to_anchors is not None:
            to_anchors *= gradient[:, None]
        return to_anchors, to_keys, None


class _OverOthers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        total = rows.new_zeros(len(rows))
        for i, j, tile in _exponentials_above_diagonal(rows):
            total[i] += tile.sum(dim=1)
            if i != j:
                total[j] += tile.sum(dim=0)
        log_sum = total.log()
        ctx.save_for_backward(rows, log_sum)
        return log_sum

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        _refuse_double_backward()
        rows, log_sum = ctx.saved_tensors
        weight = gradient * (-log_sum).exp()
        to_rows = torch.zeros_like(rows)
        for i, j, tile in _exponentials_above_diagonal(rows):
            # The pair counts in the sums of both of its rows.
            tile *= weight[i, None] + weight[j]
            to_rows[i].addmm_(tile, rows[j])
            if i != j:
                to_rows[j].addmm_(tile.T, rows[i])
        return to_rows


def _refuse_double_backward() -> None:
    # torch's `once_differentiable` does not detect a constant incoming gradient, as here: second
    # derivatives would silently lack a term.
    if torch.is_grad_enabled():
        raise RuntimeError("the gradient of this loss cannot be differentiated (create_graph=True)")


def _tiles(
    anchors: Tensor, keys: Tensor, excluded: Tensor | None
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield slices of the anchors and the keys with their products, −∞ for excluded keys.

    The tile is the same memory every time and may be overwritten.
    """
    side = _side(anchors)
    memory = anchors.new_empty(min(side, len(anchors)), min(side, len(keys)) + _PADDING)
    for i in _slices(len(anchors), side):
        for j in _slices(len(keys), side):
            rows, columns = i.stop - i.start, j.stop - j.start
            tile = memory[:rows, :columns]
            torch.mm(anchors[i], keys[j].T, out=tile)
            if excluded is not None:
                # A key in another tile masks a padding column instead: which ones those are stays
                # on the device, and the host does not wait.
                column = excluded[i] - j.start
                elsewhere = (column < 0) | (column >= columns)
                column = column.masked_fill(elsewhere, memory.shape[1] - 1)
                memory[:rows].scatter_(1, column, -math.inf)
            yield i, j, tile


def _exponentials_above_diagonal(rows: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield pairs of slices of the rows with exp of their products, 0 for a row with itself.

    Only one of two mirrored tiles is computed. The tile is the same memory every time and may be
    overwritten.
    """
    side = _side(rows)
    memory = rows.new_empty(min(side, len(rows)), min(side, len(rows)))
    slices = list(_slices(len(rows), side))
    for number, i in enumerate(slices):
        for j in slices[number:]:
            tile = memory[: i.stop - i.start, : j.stop - j.start]
            torch.mm(rows[i], rows[j].T, out=tile)
            tile.exp_()
            if i == j:
                tile.fill_diagonal_(0)
            yield i, j, tile


def _slices(count: int, side: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `side` of `count` rows."""
    for start in range(0, count, side):
        yield slice(start, min(start + side, count))


def _side(rows: Tensor) -> int:
    return _SIDE_ON_CPU if rows.device.type == "cpu" else _SIDE_ELSEWHERE
