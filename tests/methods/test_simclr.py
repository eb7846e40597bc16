"""SimCLR: NT-Xent on the projections, and its loss of small crops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from built_methods import build, embeddings, losses_of
from naive_losses import nt_xent_by_loop, seeds
from wcl.ops.losses import crop_nce, nt_xent


@given(seeds, st.integers(2, 8), st.sampled_from([0.05, 0.1, 1.0]))
@settings(deadline=None, max_examples=20)
def test_simclr_is_nt_xent_on_the_projections(seed: int, images: int, temperature: float) -> None:
    method = build("simclr", temperature=temperature)
    out = embeddings(method, seed, images)
    losses = losses_of(method, out)
    expected = nt_xent_by_loop(out["g"][0], out["g"][1], temperature)
    torch.testing.assert_close(losses.total, expected, rtol=1e-9, atol=1e-9)
    assert losses.parts.keys() == {"nce"}
    assert losses.weak_labels == ()
    assert method.weak_labels({"h": out["h"][0], "g": out["g"][0]}) is None


@pytest.mark.parametrize("images", [2, 7])
def test_equal_embeddings_are_told_apart_by_chance(images: int) -> None:
    out = {name: torch.ones(2, images, 3, dtype=torch.float64) for name in ("h", "g")}
    assert float(losses_of(build("simclr"), out).total) == pytest.approx(math.log(2 * images - 1))


@pytest.mark.parametrize("weight", [0.0, 1.3])
def test_with_crops_it_is_nce_plus_lambda_times_the_loss_of_crops(weight: float) -> None:
    method = build("simclr", crops=4, temperature=0.2, cnce=weight)
    out = embeddings(method)
    z1, z2, crops = out["g"][0], out["g"][1], out["g"][2:]
    losses = losses_of(method, out)
    expected = nt_xent(z1, z2, 0.2) + weight * crop_nce(crops, z1, z2, 0.2)
    torch.testing.assert_close(losses.total, expected)
    assert losses.parts.keys() == ({"nce", "cnce"} if weight else {"nce"})
