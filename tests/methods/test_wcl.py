"""WCL: which losses it adds up, on which heads, from which weak labels, and where gradient goes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from built_methods import build, embeddings, losses_of, normal
from runs import ABLATION
from wcl.methods import Method
from wcl.methods.wcl import WCL, WCLSettings
from wcl.ops.losses import crop_nce, crop_swap, nt_xent, supervised_contrastive, swap
from wcl.ops.weak_labels import weak_labels
from wcl.system.errors import InputError

seeds = st.integers(0, 2**31 - 1)
WEIGHTS = {"nce": 0.7, "swap": 0.3, "cnce": 1.3, "cswap": 0.9}


def reached(module: nn.Module) -> bool:
    """Whether any gradient arrived there that is not zero."""
    return any(p.grad is not None and bool(p.grad.any()) for p in module.parameters())


def after_a_step(crops: int = 0, **settings: Any) -> Method:
    """WCL with both heads after a backward pass, whatever heads its losses need."""
    method = build("wcl", crops)
    method.settings = WCLSettings(**settings)
    views = [normal(0, 2, 8, 3, 8, 8).float()]
    views += [normal(1, crops, 8, 3, 4, 4).float()] if crops else []
    losses_of(method, method.embed(views)).total.backward()
    return method


def named_losses(config: WCLSettings, out: dict[str, Tensor]) -> dict[str, Tensor]:
    """All four losses from the functions of wcl.ops.losses, whether or not the method has them."""
    z = out["g"]
    v = z if config.heads == "shared" else out["phi"]
    y1, y2 = weak_labels(v[0]), weak_labels(v[1])
    form = config.temperature, config.positives, config.key_gradient
    return {
        "nce": nt_xent(z[0], z[1], config.temperature),
        "swap": swap(v[0], v[1], y1, y2, *form),
        "cnce": crop_nce(z[2:], z[0], z[1], config.temperature),
        "cswap": crop_swap(v[2:], v[0], v[1], y1, y2, *form),
    }


@given(
    seeds,
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.sampled_from([0.0, 0.5, 1.5]),
    st.sampled_from(["two", "shared"]),
    st.sampled_from(["mean", "sum"]),
)
@settings(deadline=None, max_examples=25)
def test_the_loss_is_the_weighted_sum_of_its_terms(
    seed: int, nce: float, beta: float, heads: str, positives: str
) -> None:
    beta = beta if nce or beta else 0.5
    form: dict[str, Any] = {"temperature": 0.2, "heads": heads, "positives": positives}
    method = build("wcl", nce=nce, swap=beta, **form)
    out = embeddings(method, seed)
    z = out["g"] if "g" in out else normal(seed, 2, 9, 5)
    v = z if heads == "shared" or "phi" not in out else out["phi"]
    losses = losses_of(method, out)
    y1, y2 = weak_labels(v[0]), weak_labels(v[1])
    expected_swap = swap(v[0], v[1], y1, y2, 0.2, method.settings.positives)
    expected_nce = nt_xent(z[0], z[1], 0.2)
    torch.testing.assert_close(losses.total, nce * expected_nce + beta * expected_swap)
    assert ("swap" in losses.parts, "nce" in losses.parts) == (beta > 0, nce > 0)
    if beta:
        torch.testing.assert_close(losses.parts["swap"], expected_swap)
        assert all(map(torch.equal, losses.weak_labels, (y1, y2)))


def test_the_defaults_are_nce_plus_half_of_swap() -> None:
    method = build("wcl")
    losses = losses_of(method, embeddings(method))
    torch.testing.assert_close(losses.total, losses.parts["nce"] + 0.5 * losses.parts["swap"])


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({}, ("g", "phi")),
        ({"nce": 0}, ("phi",)),
        ({"heads": "shared"}, ("g",)),
        ({"heads": "shared", "nce": 0}, ("g",)),
    ],
)
def test_it_trains_exactly_the_heads_it_names(
    changes: dict[str, Any], heads: tuple[str, ...]
) -> None:
    assert WCL.heads(WCLSettings(**changes), 0) == heads
    method = build("wcl", **changes)
    losses_of(method, method.embed([normal(0, 2, 8, 3, 8, 8).float()])).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())


@pytest.mark.parametrize("heads", ["two", "shared"])
def test_weights_that_are_all_zero_are_an_input_error(heads: str) -> None:
    with pytest.raises(InputError, match=r"loss\.nce.*all weights are 0"):
        build("wcl", nce=0, swap=0, heads=heads)
    assert WCL.heads(WCLSettings(nce=0, swap=0), crops=1) == ("g", "phi")


@pytest.mark.parametrize(
    ("changes", "crops", "reaches"),
    [
        ({"nce": 0}, 0, (False, True)),
        ({"swap": 0}, 0, (True, False)),
        ({}, 0, (True, True)),
        ({"heads": "shared"}, 0, (True, True)),  # both heads exist: phi is the one used
        ({"nce": 0, "swap": 0, "cswap": 0}, 2, (True, False)),
        ({"nce": 0, "swap": 0, "cnce": 0}, 2, (False, True)),
    ],
)
def test_each_loss_reaches_its_own_head_only(
    changes: dict[str, Any], crops: int, reaches: tuple[bool, bool]
) -> None:
    method = after_a_step(crops, **changes)
    heads = method.encoder.heads
    assert (reached(heads["g"]), reached(heads["phi"])) == reaches
    assert reached(method.encoder.backbone)


def test_a_shared_head_takes_the_gradient_of_both_losses() -> None:
    gradients = []
    for beta in (0.0, 0.5):
        method = build("wcl", heads="shared", swap=beta)
        losses_of(method, method.embed([normal(0, 2, 8, 3, 8, 8).float()])).total.backward()
        gradients.append(next(method.encoder.heads["g"].parameters()).grad)
    assert gradients[0] is not None and gradients[1] is not None
    assert not torch.allclose(gradients[0], gradients[1])


def test_blocking_the_keys_reaches_the_swap_loss() -> None:
    gradients = []
    for key_gradient in (True, False):
        method = build("wcl", nce=0, key_gradient=key_gradient)
        out = embeddings(method)
        v = out["phi"].requires_grad_()
        losses = losses_of(method, out)
        labels = weak_labels(v[0]), weak_labels(v[1])
        expected = 0.5 * swap(v[0], v[1], *labels, 0.1, key_gradient=key_gradient)
        (got,), (want,) = torch.autograd.grad(losses.total, v), torch.autograd.grad(expected, v)
        torch.testing.assert_close(got, want)
        gradients.append(got)
    assert not torch.allclose(gradients[0], gradients[1])


def test_without_the_swap_each_view_learns_from_its_own_labels() -> None:
    method = build("wcl", crops=3, swapped=False)
    out = embeddings(method)
    v1, v2 = out["phi"][0], out["phi"][1]
    y1, y2 = weak_labels(v1), weak_labels(v2)
    assert not torch.equal(y1, y2)
    losses = losses_of(method, out)
    own = supervised_contrastive(v1, y1) + supervised_contrastive(v2, y2)
    torch.testing.assert_close(losses.parts["swap"], own)
    torch.testing.assert_close(losses.parts["cswap"], crop_swap(out["phi"][2:], v1, v2, y2, y1))
    assert all(map(torch.equal, losses.weak_labels, (y1, y2)))


@pytest.mark.parametrize("heads", ["two", "shared"])
def test_labels_from_h_are_those_of_the_features_and_send_them_no_gradient(heads: str) -> None:
    method = build("wcl", labels_from="h", heads=heads)
    out = embeddings(method)
    out["h"].requires_grad_()
    y1, y2 = (weak_labels(h) for h in out["h"].detach())
    v = out["g" if heads == "shared" else "phi"]
    assert not torch.equal(y1, weak_labels(v[0]))
    losses = losses_of(method, out)
    torch.testing.assert_close(losses.parts["swap"], swap(v[0], v[1], y1, y2))
    assert all(map(torch.equal, losses.weak_labels, (y1, y2)))
    assert not losses.total.requires_grad


@pytest.mark.parametrize(
    ("changes", "by"), [({}, "phi"), ({"labels_from": "h"}, "h"), ({"heads": "shared"}, "g")]
)
def test_reports_get_the_weak_labels_of_a_step(changes: dict[str, Any], by: str) -> None:
    method = build("wcl", **changes)
    out = embeddings(method)
    found = method.weak_labels({name: rows[0] for name, rows in out.items()})
    assert found is not None
    assert torch.equal(found, losses_of(method, out).weak_labels[0])
    assert torch.equal(found, weak_labels(out[by][0]))
    assert build("wcl", swap=0).weak_labels({"g": out["h"][0]}) is None


@pytest.mark.parametrize("images", [2, 7])
def test_equal_embeddings_are_one_group_told_apart_by_chance(images: int) -> None:
    out = {name: torch.ones(2, images, 3, dtype=torch.float64) for name in ("h", "g", "phi")}
    losses = losses_of(build("wcl"), out)
    instance, weak = math.log(2 * images - 1), 2 * math.log(images - 1)
    assert float(losses.total) == pytest.approx(instance + 0.5 * weak)
    assert all(labels.unique().numel() == 1 for labels in losses.weak_labels)


def test_embeddings_that_are_not_finite_make_the_loss_not_finite() -> None:
    method = build("wcl", nce=0)
    out = embeddings(method)
    out["phi"][1, 3, 1] = torch.nan
    assert not losses_of(method, out).total.isfinite()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("row", ABLATION)
def test_a_row_of_the_ablation_is_the_weighted_sum_of_its_losses(row: str, count: int) -> None:
    changes, terms, heads = ABLATION[row]
    method = build("wcl", crops=count, **{"temperature": 0.2, **WEIGHTS, **changes})
    assert tuple(method.encoder.heads) == heads
    out = embeddings(method)
    losses = losses_of(method, out)
    expected = named_losses(method.settings, {"g": out["h"], "phi": out["h"], **out})
    assert losses.parts.keys() == terms
    for name in terms:
        torch.testing.assert_close(losses.parts[name], expected[name])
    torch.testing.assert_close(losses.total, sum(WEIGHTS[name] * expected[name] for name in terms))
    assert len(losses.weak_labels) == (2 if "swap" in terms else 0)


@pytest.mark.parametrize("options", [{"positives": "sum"}, {"key_gradient": False}])
def test_the_form_of_the_swapped_loss_is_that_of_the_crops_too(options: dict[str, Any]) -> None:
    method = build("wcl", crops=3, temperature=0.3, **options)
    out = {name: rows.requires_grad_() for name, rows in embeddings(method).items()}
    losses, expected = losses_of(method, out), named_losses(method.settings, out)
    for name, value in expected.items():
        torch.testing.assert_close(losses.parts[name], value)
    (got,) = torch.autograd.grad(losses.parts["cswap"], out["phi"])
    (want,) = torch.autograd.grad(expected["cswap"], out["phi"])
    torch.testing.assert_close(got, want)
    assert bool(got[:2].any()) == method.settings.key_gradient
