"""The methods: which losses they add up, on which heads, and where the gradient goes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from runs import ABLATION
from wcl.config import LossConfig, ModelConfig
from wcl.methods import build_method
from wcl.methods.simclr import SimCLR
from wcl.methods.wcl import WCL
from wcl.models.encoder import Description, Embeddings, Encoder
from wcl.ops.losses import crop_nce, crop_swap, nt_xent, supervised_contrastive, swap
from wcl.ops.weak_labels import weak_labels
from wcl.system.errors import InputError

seeds = st.integers(0, 2**31 - 1)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def embeddings(seed: int, count: int = 9) -> Embeddings:
    return Embeddings(*(normal(seed + part, count, 5) for part in range(3)))


def encoder_with(heads: tuple[str, ...]) -> Encoder:
    torch.manual_seed(0)
    model = ModelConfig("resnet_small", "cifar", head_hidden_dim=16, head_out_dim=8)
    return Encoder(Description(model, heads, 3, 8, (0.5,) * 3, (0.5,) * 3))


def reached(module: nn.Module | None) -> bool:
    """Whether any gradient arrived there that is not zero."""
    assert module is not None
    return any(p.grad is not None and bool(p.grad.any()) for p in module.parameters())


def after_a_step(config: LossConfig) -> Encoder:
    method = WCL(config)
    encoder = encoder_with(("g", "phi"))
    x = normal(0, 16, 3, 8, 8).float()
    method(encoder(x[:8]), encoder(x[8:])).total.backward()
    return encoder


@given(seeds, st.integers(2, 12), st.sampled_from([0.05, 0.1, 1.0]))
@settings(deadline=None, max_examples=20)
def test_simclr_is_nt_xent_on_z(seed: int, count: int, temperature: float) -> None:
    first, second = embeddings(seed, count), embeddings(seed + 9, count)
    losses = SimCLR(LossConfig(temperature=temperature))(first, second)
    assert first.z is not None
    assert second.z is not None
    expected = nt_xent(first.z, second.z, temperature)
    assert losses.total.equal(expected)
    assert set(losses.parts) == {"nce"}
    assert losses.parts["nce"].equal(expected)
    assert losses.weak_labels == ()


def test_simclr_needs_the_instance_head_alone() -> None:
    assert SimCLR(LossConfig()).heads == ("g",)


@given(
    seeds,
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.sampled_from([0.0, 0.5, 1.5]),
    st.sampled_from(["two", "shared"]),
    st.sampled_from(["mean", "sum"]),
)
@settings(deadline=None, max_examples=40)
def test_wcl_is_the_weighted_sum_of_its_two_losses(
    seed: int, nce: float, beta: float, heads: str, positives: str
) -> None:
    if nce == 0 and beta == 0:
        beta = 0.5
    config = LossConfig(temperature=0.2, nce=nce, swap=beta, heads=heads, positives=positives)  # type: ignore[arg-type]
    first, second = embeddings(seed), embeddings(seed + 9)
    losses = WCL(config)(first, second)
    v1, v2 = (first.z, second.z) if heads == "shared" else (first.v, second.v)
    assert v1 is not None
    assert v2 is not None
    assert first.z is not None
    assert second.z is not None
    y1, y2 = weak_labels(v1), weak_labels(v2)
    expected_swap = swap(v1, v2, y1, y2, 0.2, config.positives)
    expected_nce = nt_xent(first.z, second.z, 0.2)
    torch.testing.assert_close(losses.total, nce * expected_nce + beta * expected_swap)
    assert ("swap" in losses.parts, "nce" in losses.parts) == (beta > 0, nce > 0)
    if beta:
        torch.testing.assert_close(losses.parts["swap"], expected_swap)
        assert all(map(torch.equal, losses.weak_labels, (y1, y2)))


def test_wcl_at_its_defaults_is_nce_plus_half_of_swap() -> None:
    losses = WCL(LossConfig())(embeddings(0), embeddings(9))
    torch.testing.assert_close(losses.total, losses.parts["nce"] + 0.5 * losses.parts["swap"])


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (LossConfig(), ("g", "phi")),
        (LossConfig(nce=0), ("phi",)),
        (LossConfig(heads="shared"), ("g",)),
        (LossConfig(heads="shared", nce=0), ("g",)),
    ],
)
def test_wcl_works_with_exactly_the_heads_it_names(
    config: LossConfig, heads: tuple[str, ...]
) -> None:
    method = WCL(config)
    assert method.heads == heads
    encoder = encoder_with(heads)
    x = normal(0, 16, 3, 8, 8).float()
    method(encoder(x[:8]), encoder(x[8:])).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("heads", ["two", "shared"])
def test_wcl_without_any_loss_is_an_input_error(heads: str) -> None:
    with pytest.raises(InputError, match="nothing would be learned"):
        WCL(LossConfig(nce=0, swap=0, heads=heads))  # type: ignore[arg-type]


def test_each_loss_reaches_its_own_head_only() -> None:
    only_swap, only_nce = after_a_step(LossConfig(nce=0)), after_a_step(LossConfig(swap=0))
    both = after_a_step(LossConfig())
    assert (reached(only_swap.g), reached(only_swap.phi)) == (False, True)
    assert (reached(only_nce.g), reached(only_nce.phi)) == (True, False)
    assert (reached(both.g), reached(both.phi)) == (True, True)
    assert all(reached(encoder.backbone) for encoder in (only_swap, only_nce, both))


def test_a_shared_head_takes_both_gradients_and_phi_none() -> None:
    encoder = after_a_step(LossConfig(heads="shared"))
    assert (reached(encoder.g), reached(encoder.phi)) == (True, False)
    half = after_a_step(LossConfig(heads="shared", swap=0))
    assert encoder.g is not None
    assert half.g is not None
    whole_gradient, half_gradient = encoder.g[0].weight.grad, half.g[0].weight.grad
    assert isinstance(whole_gradient, Tensor)
    assert isinstance(half_gradient, Tensor)
    assert not torch.allclose(whole_gradient, half_gradient)


def test_blocking_the_keys_reaches_the_swap_loss() -> None:
    gradients = []
    for key_gradient in (True, False):
        v1, v2 = normal(0, 9, 5).requires_grad_(), normal(1, 9, 5)
        config = LossConfig(nce=0, key_gradient=key_gradient)
        losses = WCL(config)(Embeddings(v1, None, v1), Embeddings(v2, None, v2))
        expected = 0.5 * swap(
            v1, v2, weak_labels(v1), weak_labels(v2), config.temperature, key_gradient=key_gradient
        )
        (got,), (want,) = torch.autograd.grad(losses.total, v1), torch.autograd.grad(expected, v1)
        torch.testing.assert_close(got, want)
        gradients.append(got)
    assert not torch.allclose(gradients[0], gradients[1])


def test_without_the_swap_each_view_learns_from_its_own_labels() -> None:
    first, second, crops = embeddings(0), embeddings(9), embeddings(18, 27)
    v1, v2 = first.v, second.v
    assert v1 is not None
    assert v2 is not None
    y1, y2 = weak_labels(v1), weak_labels(v2)
    assert not torch.equal(y1, y2)
    losses = WCL(LossConfig(swapped=False), crops=True)(first, second, crops)
    own = supervised_contrastive(v1, y1) + supervised_contrastive(v2, y2)
    torch.testing.assert_close(losses.parts["swap"], own)
    of_crops = crop_swap(by_crop(crops.v, 9), v1, v2, y2, y1)
    torch.testing.assert_close(losses.parts["cswap"], of_crops)
    assert all(map(torch.equal, losses.weak_labels, (y1, y2)))


@pytest.mark.parametrize("heads", ["two", "shared"])
def test_labels_from_h_are_those_of_the_features_and_send_them_no_gradient(heads: str) -> None:
    first, second = embeddings(0), embeddings(9)
    first.h.requires_grad_()
    y1, y2 = weak_labels(first.h.detach()), weak_labels(second.h)
    v1, v2 = (first.z, second.z) if heads == "shared" else (first.v, second.v)
    assert v1 is not None
    assert v2 is not None
    assert not torch.equal(y1, weak_labels(v1))
    losses = WCL(LossConfig(labels_from="h", heads=heads))(first, second)  # type: ignore[arg-type]
    torch.testing.assert_close(losses.parts["swap"], swap(v1, v2, y1, y2))
    assert all(map(torch.equal, losses.weak_labels, (y1, y2)))
    assert not losses.total.requires_grad


def test_embeddings_that_are_not_finite_make_the_loss_not_finite() -> None:
    v = normal(0, 6, 4)
    v[3, 1] = torch.nan
    broken, whole = Embeddings(v, None, v), Embeddings(v, None, normal(1, 6, 4))
    assert not WCL(LossConfig(nce=0))(whole, broken).total.isfinite()


@pytest.mark.parametrize(("name", "kind"), [("wcl", WCL), ("simclr", SimCLR)])
def test_methods_are_built_by_name(name: str, kind: type) -> None:
    config = LossConfig(temperature=0.3)
    method = build_method(name, config)
    assert type(method) is kind
    assert method.config is config


WEIGHTS = {"nce": 0.7, "swap": 0.3, "cnce": 1.3, "cswap": 0.9}


def by_crop(embeddings: Tensor | None, images: int) -> Tensor:
    """(K, N, D): crop k of image i is row k·N + i."""
    assert embeddings is not None
    count = len(embeddings) // images
    rows = [[embeddings[k * images + i] for i in range(images)] for k in range(count)]
    return torch.stack([torch.stack(crop) for crop in rows])


def named_losses(
    config: LossConfig, first: Embeddings, second: Embeddings, crops: Embeddings
) -> dict[str, Tensor]:
    """All four losses from the functions of wcl.ops.losses, whether or not the method has them."""
    shared = config.heads == "shared"
    z1, z2, z3 = first.z, second.z, crops.z
    v1, v2, v3 = (e.z if shared else e.v for e in (first, second, crops))
    assert z1 is not None
    assert z2 is not None
    assert v1 is not None
    assert v2 is not None
    y1, y2 = weak_labels(v1), weak_labels(v2)
    form = config.temperature, config.positives, config.key_gradient
    return {
        "nce": nt_xent(z1, z2, config.temperature),
        "swap": swap(v1, v2, y1, y2, *form),
        "cnce": crop_nce(by_crop(z3, len(z1)), z1, z2, config.temperature),
        "cswap": crop_swap(by_crop(v3, len(v1)), v1, v2, y1, y2, *form),
    }


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("row", ABLATION)
def test_a_row_of_the_ablation_is_the_weighted_sum_of_its_losses(row: str, count: int) -> None:
    settings, terms, heads = ABLATION[row]
    config = LossConfig(**{"temperature": 0.2, **WEIGHTS, **settings})
    method = WCL(config, crops=True)
    assert method.heads == heads
    first, second, crops = embeddings(0), embeddings(9), embeddings(18, 9 * count)
    losses = method(first, second, crops)
    expected = named_losses(config, first, second, crops)
    assert losses.parts.keys() == terms
    for name in terms:
        torch.testing.assert_close(losses.parts[name], expected[name])
    torch.testing.assert_close(losses.total, sum(WEIGHTS[name] * expected[name] for name in terms))
    assert len(losses.weak_labels) == (2 if "swap" in terms else 0)


@pytest.mark.parametrize("row", ABLATION)
def test_a_row_of_the_ablation_trains_exactly_the_heads_it_names(row: str) -> None:
    settings, _, heads = ABLATION[row]
    method = WCL(LossConfig(**settings), crops=True)
    encoder = encoder_with(heads)
    x = normal(0, 16, 3, 8, 8).float()
    small = encoder(normal(1, 16, 3, 4, 4).float())
    method(encoder(x[:8]), encoder(x[8:]), small).total.backward()
    for parameter in encoder.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"positives": "sum"}, {"key_gradient": False}])
def test_the_form_of_the_swapped_loss_is_that_of_the_crops_too(options: dict[str, Any]) -> None:
    config = LossConfig(temperature=0.3, **options)
    first, second, crops = embeddings(0), embeddings(9), embeddings(18, 27)
    for part in (*first, *second, *crops):
        assert part is not None
        part.requires_grad_()
    losses = WCL(config, crops=True)(first, second, crops)
    expected = named_losses(config, first, second, crops)
    for name, value in expected.items():
        torch.testing.assert_close(losses.parts[name], value)
    assert first.v is not None
    (got,) = torch.autograd.grad(losses.parts["cswap"], first.v, allow_unused=True)
    (want,) = torch.autograd.grad(expected["cswap"], first.v, allow_unused=True)
    assert (got is None) == (want is None) == (not config.key_gradient)
    if got is not None:
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(("term", "reaches"), [("cnce", (True, False)), ("cswap", (False, True))])
def test_each_loss_of_crops_reaches_its_own_head_only(
    term: str, reaches: tuple[bool, bool]
) -> None:
    others = {name: 0.0 for name in WEIGHTS if name != term}
    encoder = encoder_with(("g", "phi"))
    x = normal(0, 16, 3, 8, 8).float()
    small = encoder(normal(1, 16, 3, 4, 4).float())
    losses = WCL(LossConfig(**others), crops=True)(encoder(x[:8]), encoder(x[8:]), small)  # type: ignore[arg-type]
    assert losses.parts.keys() == {term}
    losses.total.backward()
    assert (reached(encoder.g), reached(encoder.phi)) == reaches


def test_simclr_with_crops_is_nce_plus_lambda_times_the_crops() -> None:
    config = LossConfig(temperature=0.2, **WEIGHTS)  # type: ignore[arg-type]
    method = SimCLR(config, crops=True)
    first, second, crops = embeddings(0), embeddings(9), embeddings(18, 36)
    losses = method(first, second, crops)
    expected = named_losses(config, first, second, crops)
    assert method.heads == ("g",)
    assert losses.parts.keys() == {"nce", "cnce"}
    torch.testing.assert_close(losses.total, 0.7 * expected["nce"] + 1.3 * expected["cnce"])
    plain = SimCLR(LossConfig(cnce=0), crops=True)(first, second, crops)
    assert plain.parts.keys() == {"nce"}


@pytest.mark.parametrize(("name", "terms"), [("wcl", {"nce", "swap"}), ("simclr", {"nce"})])
def test_without_crops_there_are_no_losses_of_crops(name: str, terms: set[str]) -> None:
    method = build_method(name, LossConfig())
    assert method(embeddings(0), embeddings(9)).parts.keys() == terms
    with_crops = build_method(name, LossConfig(), crops=True)
    losses = with_crops(embeddings(0), embeddings(9), embeddings(18, 18))
    assert losses.parts.keys() == terms | {"c" + term for term in terms}


def test_losses_of_crops_alone_need_crops() -> None:
    config = LossConfig(nce=0, swap=0)
    assert WCL(config, crops=True).heads == ("g", "phi")
    with pytest.raises(InputError, match="nothing would be learned"):
        WCL(config)
