"""Log-sums by tiles against the whole matrix, with their gradients; what they hold and wait for."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from naive_losses import assert_same_with_gradient, labels_of, normal, seeds
from wcl.ops import tiled_losses as tiled
from wcl.ops.losses import crop_nce, crop_swap, nt_xent, swap
from wcl.ops.tiled_losses import log_sum_over_all, log_sum_over_others
from wcl.ops.weak_labels import components, nearest_neighbors

sides = st.integers(1, 9)


@contextmanager
def tiles_of(side: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled, "_SIDE_ON_CPU", side)
        yield


def of_whole_matrix(anchors: Tensor, keys: Tensor, excluded: Tensor | None = None) -> Tensor:
    products = anchors @ keys.T
    if excluded is not None:
        left_out = (excluded[:, :, None] == torch.arange(len(keys))).any(dim=1)
        products = products.masked_fill(left_out, -math.inf)
    return products.logsumexp(dim=1)


def weighted(log_sum: Tensor) -> Tensor:
    """A scalar in which every anchor has another weight."""
    return (log_sum * torch.linspace(-1, 2, len(log_sum), dtype=log_sum.dtype)).sum()


@given(seeds, sides, st.integers(0, 20), st.integers(2, 20), st.integers(0, 4))
@settings(deadline=None, max_examples=80)
def test_anchors_against_keys_are_as_of_the_whole_matrix(
    seed: int, side: int, anchors: int, keys: int, left_out: int
) -> None:
    """Any keys but the last may be left out; −1 stands for none."""
    excluded = None
    if left_out:
        generator = torch.Generator().manual_seed(seed)
        excluded = torch.randint(-1, keys - 1, (anchors, left_out), generator=generator)
    with tiles_of(side):
        assert_same_with_gradient(
            lambda a, k: weighted(log_sum_over_all(a, k, excluded)),
            lambda a, k: weighted(of_whole_matrix(a, k, excluded)),
            normal(seed, anchors, 5),
            normal(seed + 1, keys, 5),
        )


@given(seeds, sides, st.integers(2, 20))
@settings(deadline=None, max_examples=40)
def test_rows_against_each_other_are_as_of_the_whole_matrix(
    seed: int, side: int, count: int
) -> None:
    with tiles_of(side):
        assert_same_with_gradient(
            lambda rows: weighted(log_sum_over_others(rows, bound=50)),
            lambda rows: weighted(of_whole_matrix(rows, rows, torch.arange(count)[:, None])),
            normal(seed, count, 5),
        )


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_gradient_goes_only_where_it_is_wanted(wanted: tuple[bool, bool]) -> None:
    rows = [normal(i, 7, 4).requires_grad_(want) for i, want in enumerate(wanted)]
    (there,) = (x for x in rows if x.requires_grad)
    with tiles_of(3):
        (got,) = torch.autograd.grad(weighted(log_sum_over_all(rows[0], rows[1])), there)
    (want,) = torch.autograd.grad(weighted(of_whole_matrix(rows[0], rows[1])), there)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("bound", [1.0, 10.0, 39.0, 41.0, 1000.0])
def test_single_precision_is_close_to_double_for_products_of_any_size(bound: float) -> None:
    rows = torch.nn.functional.normalize(normal(0, 1100, 6), dim=1) * math.sqrt(bound)
    rows[1] = -rows[0]  # the whole range of products is there
    double = rows.requires_grad_()
    single = rows.detach().float().requires_grad_()
    expected = of_whole_matrix(double, double, torch.arange(len(rows))[:, None])
    found = log_sum_over_others(single, bound)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * bound)
    (got,) = torch.autograd.grad(found.mean(), single)
    (want,) = torch.autograd.grad(expected.mean(), double)
    # At a bound of 1000 the exponents, rounded in single precision, are off by up to 1e-4.
    torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-4 * want.abs().max().item())


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_second_derivative_is_refused(symmetric: bool) -> None:
    rows = normal(0, 5, 3).requires_grad_()
    log_sum = log_sum_over_others(rows, 20) if symmetric else log_sum_over_all(rows, rows)
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        torch.autograd.grad(log_sum.sum(), rows, create_graph=True)


def every_loss(count: int, device: str = "cpu") -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """The losses of `count` images with two crops each: of all images and of a few."""

    def rows(*shape: int) -> Tensor:
        return normal(0, *shape).to(device).requires_grad_()

    few = torch.arange(0, count, 7, device=device)
    labels = labels_of(0, count, 9).to(device)
    for own in (None, few):
        name = "all" if own is None else "few"
        v1, v2 = rows(count, 8), rows(count, 8)
        crops = rows(2, count if own is None else len(few), 8)
        yield f"nt_xent of {name}", partial(nt_xent, v1, v2, 0.1, own)
        yield f"crop_nce of {name}", partial(crop_nce, crops, v1, v2, 0.1, own)
        for through_keys in (True, False):
            form: tuple[Any, ...] = (v1, v2, labels, labels, 0.1, "mean", through_keys, own)
            yield f"swap of {name}, {through_keys}", partial(swap, *form)
            yield f"crop_swap of {name}, {through_keys}", partial(crop_swap, crops, *form)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.elements = max([self.elements, *(tensor.numel() for tensor in tensors)])
        return result


def test_no_loss_ever_holds_all_pairs() -> None:
    count, side = 300, 64
    with tiles_of(side):
        for name, loss in every_loss(count):
            with Largest() as largest:  # type: ignore[no-untyped-call]
                loss().backward()
            rows = 2 * count * 8  # of both views, or of two crops
            assert largest.elements <= max(rows, side * (side + 16)), name


def test_no_loss_makes_the_host_wait_for_the_device() -> None:
    # Tensors of the device "meta" have no contents: to ask for some is an error.
    for _, loss in every_loss(30, "meta"):
        loss().backward()
    v = torch.empty(30, 8, device="meta")
    own = torch.arange(0, 30, 7, device="meta")
    components(nearest_neighbors(v[own], v, own))
    with pytest.raises(RuntimeError):
        v[v > 0]
