"""AdpCLR: its warm-up, its positives, and its limits."""

from typing import Any

import pytest
import torch

from built_methods import DIM, build, normal, whole
from naive_losses import cosine, nt_xent_by_loop
from wcl.methods import Method
from wcl.ops.similar_views import contrast_with_similar
from wcl.system.errors import InputError


def adpclr(**settings: Any) -> Method:
    return build("adpclr", **{"k": 2, "warmup": 0.5, **settings}).double()


def test_after_the_warm_up_the_nearest_views_are_positives() -> None:
    z, index = normal(0, 2, 6, DIM), torch.arange(6)
    views = [*z[0], *z[1]]
    nearest = []
    for i, view in enumerate(views):
        others = [m for m in range(12) if m % 6 != i % 6]
        nearest.append(sorted(others, key=lambda m: -float(cosine(view, views[m])))[:2])
    similar = torch.tensor(nearest)
    losses = adpclr(warmup=0).loss({"h": z, "g": z}, {}, whole(6))
    torch.testing.assert_close(losses.total, contrast_with_similar(z[0], z[1], similar, 0.1))
    assert losses.positives is not None
    for i in index.tolist():
        expected = sorted(m % 6 for m in nearest[i] + nearest[i + 6])
        assert sorted(losses.positives[i].tolist()) == expected


@pytest.mark.parametrize(("progress", "is_simclr"), [(0.49, True), (0.5, False), (1.0, False)])
def test_before_it_is_simclr(progress: float, is_simclr: bool) -> None:
    z, method = normal(0, 2, 6, DIM), adpclr()
    method.after_step(progress)
    losses = method.loss({"h": z, "g": z}, {}, whole(6))
    assert losses.positives is not None
    assert losses.positives.shape == (6, 4)
    assert bool((losses.positives == -1).all()) == is_simclr
    simclr = nt_xent_by_loop(z[0], z[1], 0.1)
    assert torch.allclose(losses.total, simclr) == is_simclr


def test_the_warm_up_is_part_of_the_checkpoint() -> None:
    method, other = adpclr(), adpclr()
    method.after_step(0.8)
    assert not other.is_warm
    other.load_state_dict(method.state_dict())
    assert other.is_warm


def test_equal_embeddings_have_a_finite_gradient() -> None:
    z = normal(0, 1, DIM).expand(2, 6, DIM).clone().requires_grad_()
    losses = adpclr(warmup=0).loss({"h": z, "g": z}, {}, whole(6))
    losses.total.backward()
    torch.testing.assert_close(losses.total, torch.tensor(11.0, dtype=torch.float64).log())
    assert z.grad is not None and z.grad.isfinite().all()


def test_more_positives_than_a_batch_has_others_are_what_there_are() -> None:
    """Where most images of a batch cannot be read."""
    z = normal(0, 2, 2, DIM)
    losses = adpclr(k=5, warmup=0).loss({"h": z, "g": z}, {}, whole(2))
    assert losses.positives is not None
    assert [set(row) for row in losses.positives.tolist()] == [{1, -1}, {0, -1}]


def test_more_positives_than_a_batch_has_images_are_an_input_error() -> None:
    build("adpclr", batch_size=10, k=9)
    with pytest.raises(InputError, match=r"--loss\.k: .* at most 9"):
        build("adpclr", batch_size=10, k=10)
