"""The losses against plain loops over their definitions, in float64, with their gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from naive_losses import (
    MODES,
    Positives,
    add_up,
    assert_same_with_gradient,
    labels_of,
    modes,
    normal,
    nt_xent_by_loop,
    seeds,
    shards,
    supervised_by_loop,
    temperatures,
)
from wcl.ops.losses import nt_xent, supervised_contrastive, swap


@given(seeds, st.integers(2, 6), st.integers(1, 5), temperatures)
@settings(deadline=None, max_examples=20)
def test_nt_xent_is_its_definition(seed: int, count: int, width: int, temperature: float) -> None:
    assert_same_with_gradient(
        lambda a, b: nt_xent(a, b, temperature),
        lambda a, b: nt_xent_by_loop(a, b, temperature),
        normal(seed, count, width),
        normal(seed + 1, count, width),
    )


@given(
    seeds,
    st.integers(2, 8),
    st.integers(1, 5),
    st.integers(1, 8),
    temperatures,
    modes,
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_supervised_contrastive_is_its_definition(
    seed: int, count: int, width: int, classes: int, temperature: float, mode: Positives, keys: bool
) -> None:
    labels = labels_of(seed, count, classes)
    if labels.unique().numel() == count:
        labels[0] = labels[1]  # with no positives at all there is no graph in the loop
    assert_same_with_gradient(
        lambda v: supervised_contrastive(v, labels, temperature, mode, keys),
        lambda v: supervised_by_loop(v, labels, temperature, mode, keys),
        normal(seed, count, width),
    )


@pytest.mark.parametrize("positives", MODES)
@pytest.mark.parametrize("key_gradient", [True, False])
def test_swap_gives_each_view_the_labels_of_the_other(
    positives: Positives, key_gradient: bool
) -> None:
    labels1, labels2 = torch.tensor([0, 0, 2, 2, 2, 0]), torch.tensor([1, 5, 5, 1, 1, 1])
    assert_same_with_gradient(
        lambda a, b: swap(a, b, labels1, labels2, 0.2, positives, key_gradient),
        lambda a, b: (
            supervised_by_loop(a, labels2, 0.2, positives, key_gradient)
            + supervised_by_loop(b, labels1, 0.2, positives, key_gradient)
        ),
        normal(0, 6, 4),
        normal(1, 6, 4),
    )


@given(seeds, st.integers(2, 7), temperatures)
@settings(deadline=None, max_examples=20)
def test_the_shards_of_nt_xent_add_up_to_the_whole(
    seed: int, count: int, temperature: float
) -> None:
    assert_same_with_gradient(
        lambda a, b: add_up(nt_xent(a, b, temperature, own) for own in shards(seed, count)),
        lambda a, b: nt_xent_by_loop(a, b, temperature),
        normal(seed, count, 4),
        normal(seed + 1, count, 4),
    )


@given(seeds, st.integers(2, 8), temperatures, modes, st.booleans())
@settings(deadline=None, max_examples=30)
def test_the_shards_of_swap_add_up_to_the_whole(
    seed: int, count: int, temperature: float, mode: Positives, keys: bool
) -> None:
    y1, y2 = labels_of(seed, count, 3), labels_of(seed + 1, count, 3)
    y1[0], y2[0] = y1[1], y2[1]  # with no positives at all there is no graph in the loop
    assert_same_with_gradient(
        lambda a, b: add_up(
            swap(a, b, y1, y2, temperature, mode, keys, own) for own in shards(seed, count)
        ),
        lambda a, b: (
            supervised_by_loop(a, y2, temperature, mode, keys)
            + supervised_by_loop(b, y1, temperature, mode, keys)
        ),
        normal(seed, count, 4),
        normal(seed + 1, count, 4),
    )


def test_a_shard_is_the_sum_over_its_anchors_divided_by_the_number_of_all() -> None:
    z = torch.eye(4, dtype=torch.float64)
    z1, z2 = z, z[[0, 1, 3, 2]]  # the views of images 0 and 1 agree, those of 2 and 3 do not
    easy = math.log(1 + 6 * math.exp(-2))
    assert nt_xent(z1, z2, 0.5, torch.tensor([1])).item() == pytest.approx(easy / 4)
    assert nt_xent(z1, z2, 0.5, torch.tensor([1, 0])).item() == pytest.approx(easy / 2)
    hard = math.log(6 + math.exp(2))
    assert nt_xent(z1, z2, 0.5, torch.tensor([2])).item() == pytest.approx(hard / 4)


def test_an_empty_shard_is_zero_with_a_gradient_of_zero() -> None:
    v1, v2 = normal(0, 5, 3).requires_grad_(), normal(1, 5, 3).requires_grad_()
    y, none = labels_of(0, 5, 2), torch.arange(0)
    for loss in (nt_xent(v1, v2, own=none), swap(v1, v2, y, y, own=none)):
        assert loss.item() == 0
        assert not any(part.any() for part in torch.autograd.grad(loss, (v1, v2)))


@pytest.mark.parametrize("positives", MODES)
def test_blocking_the_keys_changes_the_gradient_and_not_the_loss(positives: Positives) -> None:
    v, labels = normal(0, 6, 4).requires_grad_(), torch.tensor([0, 0, 0, 3, 3, 5])
    whole = supervised_contrastive(v, labels, 0.1, positives, key_gradient=True)
    blocked = supervised_contrastive(v, labels, 0.1, positives, key_gradient=False)
    torch.testing.assert_close(whole, blocked)
    (a,), (b,) = torch.autograd.grad(whole, v), torch.autograd.grad(blocked, v)
    assert not torch.allclose(a, b, rtol=0.1)


def test_gradients_pass_the_numerical_check() -> None:
    a, b = normal(0, 4, 3).requires_grad_(), normal(1, 4, 3).requires_grad_()
    y1, y2 = torch.tensor([0, 0, 2, 2]), torch.tensor([1, 3, 1, 1])
    assert torch.autograd.gradcheck(lambda p, q: nt_xent(p, q, 0.3), (a, b))
    for mode in MODES:
        assert torch.autograd.gradcheck(
            lambda p, mode=mode: supervised_contrastive(p, y1, 0.3, mode), (a,)
        )
        assert torch.autograd.gradcheck(
            lambda p, q, mode=mode: swap(p, q, y1, y2, 0.3, mode), (a, b)
        )


@pytest.mark.parametrize("count", [2, 3, 17])
def test_equal_embeddings_cost_the_log_of_the_number_of_others(count: int) -> None:
    same = normal(0, 1, 8).expand(count, 8)
    one_class = torch.zeros(count, dtype=torch.long)
    others = count - 1
    assert nt_xent(same, same).item() == pytest.approx(math.log(2 * count - 1))
    mean = supervised_contrastive(same, one_class).item()
    summed = supervised_contrastive(same, one_class, positives="sum").item()
    assert mean == pytest.approx(math.log(others), abs=1e-9)
    assert summed == pytest.approx(others * math.log(others), abs=1e-9)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_separated_images_have_the_closed_form(temperature: float) -> None:
    z = torch.eye(5, dtype=torch.float64)
    expected = math.log1p(8 * math.exp(-1 / temperature))
    assert nt_xent(z, z, temperature).item() == pytest.approx(expected)


def test_opposite_images_have_the_closed_form() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert nt_xent(z, z, 0.5).item() == pytest.approx(math.log1p(2 * math.exp(-4)))


@pytest.mark.parametrize("positives", MODES)
def test_orthogonal_classes_have_the_closed_form(positives: Positives) -> None:
    v = torch.eye(2, dtype=torch.float64).repeat_interleave(3, dim=0)
    labels = torch.tensor([4, 4, 4, 1, 1, 1])
    each = math.log(2 + 3 * math.exp(-2))
    expected = each if positives == "mean" else 2 * each
    assert supervised_contrastive(v, labels, 0.5, positives).item() == pytest.approx(expected)


@given(seeds, st.integers(2, 12), temperatures, modes)
@settings(deadline=None, max_examples=25)
def test_with_every_image_twice_supervised_contrast_is_nt_xent(
    seed: int, count: int, temperature: float, mode: Positives
) -> None:
    z1, z2 = normal(seed, count, 6), normal(seed + 1, count, 6)
    twice = torch.arange(count).repeat(2)
    torch.testing.assert_close(
        supervised_contrastive(torch.cat([z1, z2]), twice, temperature, mode),
        nt_xent(z1, z2, temperature),
    )


@pytest.mark.parametrize("positives", MODES)
def test_without_positives_there_is_neither_loss_nor_gradient(positives: Positives) -> None:
    v = normal(0, 5, 3).requires_grad_()
    loss = supervised_contrastive(v, torch.arange(5), positives=positives)
    (gradient,) = torch.autograd.grad(loss, v)
    assert loss.item() == 0
    assert not gradient.any()


def test_a_lonely_anchor_counts_in_the_mean_and_adds_nothing() -> None:
    v = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    loss = supervised_contrastive(v, torch.tensor([0, 0, 2]), temperature=0.5)
    assert loss.item() == pytest.approx(2 / 3 * math.log1p(math.exp(-2)))


@given(seeds, st.integers(2, 12), modes, st.booleans(), st.data())
@settings(deadline=None, max_examples=25)
def test_the_order_of_the_images_does_not_matter(
    seed: int, count: int, mode: Positives, keys: bool, data: st.DataObject
) -> None:
    order = torch.tensor(data.draw(st.permutations(range(count))))
    v1, v2 = normal(seed, count, 5).requires_grad_(), normal(seed + 1, count, 5).requires_grad_()
    y1, y2 = labels_of(seed, count, 4), labels_of(seed + 1, count, 4)
    for loss, moved in (
        (nt_xent(v1, v2), nt_xent(v1[order], v2[order])),
        (
            swap(v1, v2, y1, y2, 0.1, mode, keys),
            swap(v1[order], v2[order], y1[order], y2[order], 0.1, mode, keys),
        ),
    ):
        torch.testing.assert_close(loss, moved)
        for got, want in zip(
            torch.autograd.grad(moved, (v1, v2)), torch.autograd.grad(loss, (v1, v2)), strict=True
        ):
            torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)


def test_the_names_of_the_labels_do_not_matter() -> None:
    v = normal(0, 6, 4)
    assert supervised_contrastive(v, torch.tensor([0, 0, 1, 1, 2, 2])).equal(
        supervised_contrastive(v, torch.tensor([5, 5, 3, 3, 0, 0]))
    )


def test_the_lengths_of_the_rows_do_not_matter() -> None:
    z1, z2 = normal(0, 6, 4), normal(1, 6, 4)
    lengths = torch.linspace(0.01, 100, 6, dtype=torch.float64)[:, None]
    y1, y2 = labels_of(0, 6, 2), labels_of(1, 6, 2)
    torch.testing.assert_close(nt_xent(z1 * lengths, z2), nt_xent(z1, z2))
    torch.testing.assert_close(swap(z1, z2 * lengths, y1, y2), swap(z1, z2, y1, y2))


@given(seeds, st.integers(2, 64), modes)
@settings(deadline=None, max_examples=25)
def test_float32_is_close_to_float64(seed: int, count: int, mode: Positives) -> None:
    v1, v2 = normal(seed, count, 32), normal(seed + 1, count, 32)
    y1, y2 = labels_of(seed, count, 5), labels_of(seed + 1, count, 5)
    for low, high in (
        (nt_xent(v1.float(), v2.float()), nt_xent(v1, v2)),
        (
            swap(v1.float(), v2.float(), y1, y2, positives=mode),
            swap(v1, v2, y1, y2, positives=mode),
        ),
    ):
        assert low.dtype == torch.float32
        torch.testing.assert_close(low.double(), high, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.01, 1e-3, 100.0])
@pytest.mark.parametrize("rows", [torch.ones(6, 4), torch.eye(6), -torch.eye(6)])
def test_extreme_temperatures_stay_finite(temperature: float, rows: Tensor) -> None:
    v1, v2 = rows.clone().requires_grad_(), rows.flip(0).requires_grad_()
    y = torch.tensor([0, 0, 2, 2, 2, 5])
    for loss in (
        nt_xent(v1, v2, temperature),
        swap(v1, v2, y, torch.zeros_like(y), temperature, "sum"),
    ):
        assert loss.isfinite()
        assert all(part.isfinite().all() for part in torch.autograd.grad(loss, (v1, v2)))


def test_identical_rows_keep_their_closed_form_at_a_low_temperature() -> None:
    same = torch.ones(6, 4)
    assert nt_xent(same, same, 0.01).item() == pytest.approx(math.log(11), abs=1e-4)


SHAPES = [((3, 4), (2, 4)), ((3, 4), (3, 5)), ((4,), (4,)), ((1, 4), (1, 4)), ((2, 3, 4),) * 2]


@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_views_that_do_not_match_are_an_error(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    a, b, y = torch.ones(first), torch.ones(second), torch.zeros(first[0], dtype=torch.long)
    with pytest.raises(ValueError, match="two views"):
        nt_xent(a, b)
    with pytest.raises(ValueError, match="two views"):
        swap(a, b, y, y)


@pytest.mark.parametrize(
    ("rows", "labels"), [((3, 4), (2,)), ((3, 4), (3, 1)), ((1, 4), (1,)), ((4,), (4,))]
)
def test_labels_that_do_not_match_are_an_error(
    rows: tuple[int, ...], labels: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="labels"):
        supervised_contrastive(torch.ones(rows), torch.zeros(labels, dtype=torch.long))


@pytest.mark.parametrize("own", [torch.ones(4, dtype=torch.bool), torch.arange(4)[:, None]])
def test_own_anchors_that_are_not_positions_are_an_error(own: Tensor) -> None:
    v, y = normal(0, 4, 3), labels_of(0, 4, 2)
    with pytest.raises(ValueError, match="own must be positions"):
        nt_xent(v, v, own=own)
    with pytest.raises(ValueError, match="own must be positions"):
        supervised_contrastive(v, y, own=own)


def test_options_that_cannot_be_are_an_error() -> None:
    z, labels = normal(0, 4, 3), labels_of(0, 4, 2)
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature must be above 0"):
            nt_xent(z, z, temperature)
    with pytest.raises(ValueError, match="mean or sum"):
        supervised_contrastive(z, labels, positives="average")  # type: ignore[arg-type]
