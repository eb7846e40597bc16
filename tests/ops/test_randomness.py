from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wcl.ops.randomness import (
    _GOLDEN,
    Draws,
    Floats,
    Integers,
    between,
    device_bits,
    mix,
    seed_of,
)

_CPU = torch.device("cpu")
_MANY = 20_000
_NO_CORRELATION = 4 / _MANY**0.5  # four standard errors
_INT64 = st.integers(-(2**63), 2**63 - 1)


def _draws(count: int = _MANY, seed: int = 0, epoch: int = 0, view: int = 0) -> Draws:
    index: Integers = np.arange(count, dtype=np.int64)
    return Draws(seed, epoch, index, np.full_like(index, view))


def _uniform(purpose: str = "crop", **where: int) -> Floats:
    return _draws(**where).uniform(purpose, 1)[:, 0]


def _correlation(a: Floats, b: Floats) -> float:
    return abs(float(np.corrcoef(a, b)[0, 1]))


def test_mixing_gives_the_published_splitmix64_sequence() -> None:
    """The reference outputs for the seed 1234567, as many implementations quote them."""
    states = 1234567 + np.arange(1, 6, dtype=np.int64) * _GOLDEN
    assert mix(states).astype(np.uint64).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.lists(_INT64, min_size=1, max_size=20))
def test_numpy_and_torch_mix_alike(words: list[int]) -> None:
    array = np.array(words, dtype=np.int64)
    assert mix(torch.from_numpy(array)).tolist() == mix(array).tolist()


def test_seeds_stay_what_they_have_always_been() -> None:
    """A change here changes every run: it must never happen unnoticed."""
    assert seed_of(0) == 7070836379803831727
    assert seed_of(0, "order", 3) == 8015182366618656106
    assert seed_of(-1, "x") == 2958934323591158712
    assert seed_of(2**63 - 1) == 839362501698510701


def test_draws_stay_what_they_have_always_been() -> None:
    draws = Draws(7, 3, np.array([0, 41], dtype=np.int64), np.array([0, 1], dtype=np.int64))
    assert draws.keys("crop").tolist() == [8955438453788350120, 6911459273794272349]
    np.testing.assert_array_equal(
        draws.uniform("crop", 2),
        [[0.03940448594076562, 0.903893535987346], [0.9208220344564039, 0.19020421730096604]],
    )
    torch.testing.assert_close(
        draws.normal("noise", 3, _CPU),
        torch.tensor([[1.22925, -0.364625, -0.063106], [0.254356, -0.048927, -0.237847]]),
    )


@given(st.lists(st.one_of(_INT64, st.text(max_size=8)), max_size=5))
def test_seeds_are_below_two_to_the_63(words: list[int | str]) -> None:
    assert 0 <= seed_of(*words) < 2**63


def test_seeds_depend_on_every_word_and_on_their_order() -> None:
    seeds = {
        seed_of(*words)
        for words in [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, "a"), ("a", 0), (0, "b"), (0, "a", 0)]
    }
    assert len(seeds) == 9


def test_keys_of_different_rows_purposes_epochs_and_seeds_never_meet() -> None:
    keys = [
        _draws(seed=seed, epoch=epoch, view=view).keys(purpose)
        for seed in (0, 1)
        for epoch in (0, 1)
        for view in (0, 1)
        for purpose in ("crop", "flip")
    ]
    assert len(np.unique(np.concatenate(keys))) == 16 * _MANY


@pytest.mark.parametrize("purpose", ["crop", "flip", "jitter"])
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_uniform_numbers_are_uniform(purpose: str, seed: int) -> None:
    assert stats.kstest(_uniform(purpose, seed=seed), "uniform").pvalue > 0.01


def test_uniform_numbers_of_one_row_are_uniform() -> None:
    row = _draws(1).uniform("crop", _MANY)[0]
    assert stats.kstest(row, "uniform").pvalue > 0.01
    assert _correlation(row[1:], row[:-1]) < _NO_CORRELATION


def test_uniform_numbers_are_below_one() -> None:
    numbers = _draws(1000).uniform("crop", 1000)
    assert numbers.min() >= 0
    assert numbers.max() < 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: np.roll(_uniform(), 1),  # the neighboring image
        lambda: _uniform(view=1),
        lambda: _uniform(epoch=1),
        lambda: _uniform(seed=1),
        lambda: _uniform("flip"),
        lambda: _draws().uniform("crop", 2)[:, 1],
    ],
    ids=["index", "view", "epoch", "seed", "purpose", "count"],
)
def test_neighboring_streams_are_independent(other: Callable[[], Floats]) -> None:
    here, there = _uniform(), other()
    assert _correlation(here, there) < _NO_CORRELATION
    # Products of neighbors show dependence that a correlation misses.
    assert stats.kstest((here + there) % 1, "uniform").pvalue > 0.01
    assert _correlation((here - 0.5) ** 2, (there - 0.5) ** 2) < _NO_CORRELATION


@given(st.permutations(range(12)), st.integers(1, 12))
def test_a_row_does_not_depend_on_its_batch(order: list[int], kept: int) -> None:
    index = np.arange(100, 112, dtype=np.int64)
    view = np.arange(12, dtype=np.int64) % 2
    rows = np.array(order[:kept])
    whole, part = Draws(5, 2, index, view), Draws(5, 2, index[rows], view[rows])
    np.testing.assert_array_equal(part.uniform("crop", 4), whole.uniform("crop", 4)[rows])
    assert torch.equal(part.normal("noise", 5, _CPU), whole.normal("noise", 5, _CPU)[rows])


def test_asking_for_more_numbers_keeps_the_first() -> None:
    draws = _draws(10)
    np.testing.assert_array_equal(draws.uniform("crop", 9)[:, :4], draws.uniform("crop", 4))


def test_a_slice_of_draws_is_the_slice_of_their_numbers() -> None:
    draws = _draws(10)
    part = draws[3:7]
    assert len(part) == 4
    np.testing.assert_array_equal(part.uniform("crop", 3), draws.uniform("crop", 3)[3:7])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_normal_numbers_are_normal(count: int) -> None:
    numbers = _draws().normal("noise", count, _CPU)
    assert numbers.shape == (_MANY, count)
    assert numbers.dtype == torch.float32
    for column in numbers.double().numpy().T:
        assert stats.kstest(column, "norm").pvalue > 0.01


def test_normal_numbers_of_one_row_are_independent() -> None:
    numbers = _draws().normal("noise", 4, _CPU).double().numpy()
    correlations = np.corrcoef(np.concatenate([numbers, numbers**2], axis=1), rowvar=False)
    apart = correlations - np.diag(np.diag(correlations))
    for column in range(4):  # a number and its own square are uncorrelated as well
        assert np.abs(apart[column]).max() < _NO_CORRELATION


def test_normal_numbers_are_finite() -> None:
    assert _draws(2000).normal("noise", 1000, _CPU).isfinite().all()


def test_between_moves_the_unit_interval() -> None:
    np.testing.assert_allclose(between(np.array([0.0, 0.25, 1.0]), -2, 6), [-2, 0, 6])


def test_bits_drawn_on_the_device_depend_on_seed_step_and_image_alone() -> None:
    seed, step, images = torch.tensor(3), torch.tensor(5), torch.tensor([4, 9, 4])
    bits = device_bits(seed, step, images, 6)
    assert bits.shape == (3, 6) and bool((bits >= 0).all()) and len(bits[:2].unique()) == 12
    assert torch.equal(bits[0], bits[2])
    assert torch.equal(device_bits(seed, step, images[1:2], 6), bits[1:2])
    for other in (device_bits(seed + 1, step, images, 6), device_bits(seed, step + 1, images, 6)):
        assert not bool((other == bits).any())
