"""Label-free measures of a representation by the spectrum of its covariance.

RankMe, the third of its kind, is in `wcl.ops.diagnostics`, since training logs it.
"""

import torch
from torch import Tensor

_MIN_SHARE = 1e-6  # of the largest eigenvalue; smaller ones are rounding errors
_MAX_EIGENVALUES = 100


def alpha_req(features: Tensor) -> Tensor:
    """Compute α-ReQ (Agrawal et al., 2022): the covariance has the eigenvalues λᵢ ∝ i^−α.

    α is fitted by least squares in log–log, to at most 100 eigenvalues. Good representations have
    an α near 1; it is large if few directions have all the variance, and 0 for white noise.

    Args:
        features: (N, D) rows, N ≥ 2.

    Returns:
        α; NaN if fewer than two eigenvalues differ from zero.
    """
    rows = features.double()
    values = torch.linalg.svdvals(rows - rows.mean(dim=0)).square()
    values = values[values > _MIN_SHARE * values[0]][:_MAX_EIGENVALUES].log()
    place = torch.arange(1, len(values) + 1, device=values.device, dtype=values.dtype).log()
    place = place - place.mean()
    slope: Tensor = (place * values).sum() / place.square().sum()
    return -slope


def lidar(views: Tensor, ridge: float = 1e-4) -> Tensor:
    """Compute LiDAR (Thilak et al., 2023), the effective rank of a linear discriminant analysis.

    Each image is a class whose members are its views. The rank is high if many directions vary
    between images and little between the views of one image.

    Args:
        views: (V, N, D) features of V ≥ 2 views of N images.
        ridge: δ, added to the covariance of the views of an image, as a share of the mean variance
            of a feature (the paper adds 1e-4 to features of its own scale).

    Returns:
        exp of the entropy of the normalized eigenvalues; 1 if no feature varies.
    """
    rows = views.double()
    means = rows.mean(dim=0)
    between = torch.cov(means.T)
    within = (rows - means).flatten(0, 1)
    within = within.T @ within / max(1, (len(rows) - 1) * rows.shape[1])
    scale = (between + within).diagonal().mean()
    if not scale > 0:
        return torch.ones_like(scale)
    within = within + ridge * scale * torch.eye(len(within), device=rows.device, dtype=rows.dtype)
    # The eigenvalues of Σw^−½ Σb Σw^−½ are those of L⁻¹ Σb L⁻ᵀ with Σw = L Lᵀ.
    lower = torch.linalg.cholesky(within)
    half = torch.linalg.solve_triangular(lower, between, upper=False)
    whitened = torch.linalg.solve_triangular(lower, half.T, upper=False)
    values = torch.linalg.eigvalsh(whitened).clamp(min=0)
    p = values / values.sum() + 1e-7
    return torch.exp(-(p * p.log()).sum())
