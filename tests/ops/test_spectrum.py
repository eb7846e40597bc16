"""The spectra of representations against closed forms and the papers' formulas in float64."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from wcl.ops.spectrum import alpha_req, lidar


def with_eigenvalues(values: np.ndarray, rows: int, seed: int = 0) -> torch.Tensor:
    """Return centered rows whose covariance has these eigenvalues, up to a factor."""
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(rows, len(values)))
    u, _, vt = np.linalg.svd(noise - noise.mean(axis=0), full_matrices=False)
    return torch.from_numpy(u * np.sqrt(values) @ vt + generator.normal(size=len(values)))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
def test_alpha_is_the_exponent_of_a_power_law(alpha: float) -> None:
    values = np.arange(1, 33, dtype=float) ** -alpha
    assert float(alpha_req(with_eigenvalues(values, 200))) == pytest.approx(alpha, abs=1e-9)


def test_alpha_is_fitted_to_the_first_hundred_eigenvalues() -> None:
    values = np.arange(1, 151, dtype=float) ** -1.0
    values[100:] = 1e-4
    assert float(alpha_req(with_eigenvalues(values, 300))) == pytest.approx(1)


def test_alpha_of_one_direction_is_undefined() -> None:
    line = torch.arange(10.0)[:, None] * torch.tensor([1.0, 2.0, 3.0])
    assert math.isnan(float(alpha_req(line)))


def naive_lidar(views: np.ndarray, ridge: float) -> float:
    """Eq. 1–3 of the paper by loops, the square root of the matrix by SciPy."""
    count, images, dim = views.shape
    means = views.mean(axis=0)
    between = sum(np.outer(m, m) for m in means - means.mean(axis=0)) / (images - 1)
    within = np.zeros((dim, dim))
    for view in views:
        for row, mean in zip(view, means, strict=True):
            within += np.outer(row - mean, row - mean) / (images * (count - 1))
    scale = np.trace(between + within) / dim
    root = np.linalg.inv(scipy.linalg.sqrtm(within + ridge * scale * np.eye(dim)).real)
    values = np.linalg.eigvalsh(root @ between @ root).clip(min=0)
    p = values / values.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))


@pytest.mark.parametrize("count", [2, 4])
def test_lidar_equals_the_papers_formula(count: int) -> None:
    generator = np.random.default_rng(1)
    images = generator.normal(size=(40, 6)) * [3, 2, 1, 1, 0.5, 0.1]
    views = images + 0.5 * generator.normal(size=(count, 40, 6))
    assert float(lidar(torch.from_numpy(views))) == pytest.approx(naive_lidar(views, 1e-4))


def test_lidar_counts_the_directions_that_tell_images_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(2000, 12)
    images[:, :4] = torch.randn(2000, 4, generator=generator)
    views = images + 0.01 * torch.randn(2, 2000, 12, generator=generator)
    assert float(lidar(views)) == pytest.approx(4, abs=0.1)
    assert float(lidar(1000 * views)) == pytest.approx(float(lidar(views)))  # scale-free


def test_lidar_of_constant_features_is_one() -> None:
    assert float(lidar(torch.ones(2, 10, 3))) == 1
