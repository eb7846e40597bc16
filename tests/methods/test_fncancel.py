"""FNCancel: its support set, its loss, and what it reports."""

from pathlib import Path
from typing import Any

import pytest
import torch

from built_methods import DIM, build, normal, whole
from naive_losses import nt_xent_by_loop
from runs import metrics, tiny_run
from wcl.methods import Method
from wcl.ops.similar_views import contrast_with_similar, most_similar
from wcl.system.errors import InputError


def fncancel(**settings: Any) -> Method:
    return build("fncancel", **{"top_k": 4, "threshold": 0.2, "support": 3, **settings}).double()


@pytest.mark.parametrize("use", ["attract", "eliminate"])
@pytest.mark.parametrize("aggregate", ["max", "mean"])
def test_the_loss_uses_what_the_two_views_and_the_support_find(use: Any, aggregate: Any) -> None:
    z, support = normal(0, 2, 7, DIM), normal(1, 3, 7, DIM)
    method = fncancel(use=use, aggregate=aggregate)
    losses = method.loss({"h": z, "g": z}, {"g": support}, whole(7))
    found = most_similar(
        torch.cat([z, support]), z.flatten(0, 1), torch.arange(7), 4, 0.2, aggregate
    )
    expected = contrast_with_similar(z[0], z[1], found.repeat(2, 1), 0.1, use)
    torch.testing.assert_close(losses.total, expected)
    assert losses.positives is not None
    assert torch.equal(losses.positives, torch.where(found >= 0, found % 7, -1))


def test_if_no_false_negative_is_found_it_is_simclr() -> None:
    z, support = normal(0, 2, 7, DIM), normal(1, 3, 7, DIM)
    losses = fncancel(threshold=1).loss({"h": z, "g": z}, {"g": support}, whole(7))
    torch.testing.assert_close(losses.total, nt_xent_by_loop(z[0], z[1], 0.1))
    assert losses.positives is not None and (losses.positives == -1).all()


def test_support_views_are_embedded_without_a_gradient_and_not_as_anchors() -> None:
    method = fncancel()
    views = [normal(0, 2, 8, 3, 8, 8), normal(1, 3, 8, 3, 8, 8)]
    out, targets = method.embed(views), method.targets(views)
    assert [len(values) for values in out.values()] == [2, 2]
    assert len(targets["g"]) == 3 and not targets["g"].requires_grad
    torch.testing.assert_close(
        targets["g"], method.encoder(views[1].flatten(0, 1))["g"].unflatten(0, (3, 8))
    )


def test_without_support_the_two_views_find_the_false_negatives() -> None:
    method = fncancel(support=0)
    views = [normal(0, 2, 8, 3, 8, 8)]
    assert method.targets(views) == {}
    losses = method.loss(method.embed(views), {}, whole(8))
    losses.total.backward()
    assert losses.total.isfinite()


@pytest.mark.parametrize("use", ["attract", "eliminate"])
def test_equal_embeddings_have_a_finite_gradient(use: str) -> None:
    method = fncancel(use=use)
    z = normal(0, 1, DIM).expand(2, 6, DIM).clone().requires_grad_()
    method.loss({"h": z, "g": z}, {"g": z[:1].detach()}, whole(6)).total.backward()
    assert z.grad is not None and z.grad.isfinite().all()


def test_more_false_negatives_than_a_batch_has_images_are_an_input_error() -> None:
    build("fncancel", batch_size=11)
    with pytest.raises(InputError, match=r"--loss\.top_k: .* at most 9"):
        build("fncancel", batch_size=10)


def test_a_run_logs_the_quality_of_its_positives(tmp_path: Path) -> None:
    loss = {"support": 1, "top_k": 2, "threshold": -1.0}
    epoch = metrics(tiny_run(tmp_path / "run", method="fncancel", loss=loss, epochs=1))[-1]
    assert 1 <= epoch["positives"] <= 2
    assert all(0 < epoch[name] < 1 for name in ("pair_precision", "pair_recall", "conflicting"))
