"""Mean shift: its targets and its loss against loops, and images without a target."""

import numpy as np
import pytest
import torch
from torch import Tensor

from built_methods import build, losses_of, normal
from wcl.methods.meanshift import MeanShift
from wcl.neighbors import FeatureBank
from wcl.system.errors import InputError

IMAGES, K, WEIGHT = 64, 3, 2.0


def started(features: Tensor, rows: list[int] | None = None) -> MeanShift:
    """The method after it has received the features of these images, by default of all."""
    method = build("meanshift", neighbors=K, neighbor_weight=WEIGHT).double()
    assert isinstance(method, MeanShift)
    bank = FeatureBank(IMAGES, method.encoder.feature_dim)
    index = np.arange(IMAGES) if rows is None else np.array(rows)
    bank.store([index], features[torch.from_numpy(index)])
    method.start(bank)
    return method


def unit(v: Tensor) -> Tensor:
    return v / v.square().sum().sqrt()


def features(seed: int = 0) -> Tensor:
    return normal(seed, IMAGES, build("meanshift").encoder.feature_dim)


def test_targets_are_the_image_and_the_mean_of_its_nearest_in_the_whole_set() -> None:
    f = features()
    method = started(f)
    rounded = [unit(row).half().double() for row in f]  # as the bank keeps them
    for i in range(IMAGES):
        others = [j for j in range(IMAGES) if j != i]
        near = sorted(others, key=lambda j: -float(rounded[i] @ rounded[j]))[:K]
        assert method.neighbors[i].tolist() == near
        mean = torch.stack([rounded[j] for j in near]).mean(dim=0)
        expected = unit(rounded[i] + WEIGHT * mean)
        torch.testing.assert_close(method.target[i], expected, rtol=0, atol=1e-6)


def test_the_loss_is_the_mean_of_one_minus_the_cosine() -> None:
    method = started(features())
    h = normal(1, 2, 9, method.encoder.feature_dim)
    total = 0.0
    for view in range(2):
        for i in range(9):
            total += 1 - float(unit(h[view, i]) @ method.target[i])
    losses = losses_of(method, {"h": h})
    assert float(losses.total) == pytest.approx(total / 18, rel=1e-9)
    assert losses.positives is not None
    assert losses.positives.equal(method.neighbors[:9])


def test_an_image_that_could_not_be_read_gets_no_gradient_and_is_no_neighbor() -> None:
    f = features()
    method = started(f, rows=[i for i in range(IMAGES) if i != 4])
    assert not (method.neighbors == 4).any()
    h = normal(1, 2, 9, method.encoder.feature_dim).requires_grad_()
    losses_of(method, {"h": h}).total.backward()
    assert h.grad is not None
    assert h.grad.abs().sum(dim=(0, 2)).gt(0).tolist() == [i != 4 for i in range(9)]


def test_equal_features_are_their_own_targets() -> None:
    method = started(torch.ones(IMAGES, build("meanshift").encoder.feature_dim).double())
    h = torch.ones(2, 9, method.encoder.feature_dim, dtype=torch.float64)
    assert float(losses_of(method, {"h": h}).total) == pytest.approx(0, abs=1e-3)


def test_few_readable_images_have_few_neighbors() -> None:
    method = started(features(), rows=[0, 5, 6])
    assert method.neighbors[0].tolist().count(-1) == K - 2
    assert method.target[5].norm() == pytest.approx(1, abs=1e-3)


def test_as_many_neighbors_as_images_are_an_input_error() -> None:
    with pytest.raises(InputError, match=r"--loss\.neighbors: 64 images have at most 63"):
        build("meanshift", neighbors=64)
