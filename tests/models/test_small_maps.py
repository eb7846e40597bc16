"""Small maps: the same results as convolutions, in networks too, and the same files."""

import copy

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.config import ModelConfig
from wcl.models.backbones import build_backbone
from wcl.models.small_maps import SmallMapConv2d, convolve_small_map, with_small_maps


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_values_and_gradients_are_those_of_a_convolution(
    size: int, stride: int, count: int
) -> None:
    def results(convolve: object) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        shape = count, 3, size, size
        maps = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(5, 3, 3, 3, generator=generator, dtype=torch.float64)
        weight.requires_grad_()
        out = convolve(maps, weight)  # type: ignore[operator]
        (out * out.detach().cos()).sum().backward()
        assert maps.grad is not None and weight.grad is not None
        return out, maps.grad, weight.grad

    fast = results(lambda maps, weight: convolve_small_map(maps, weight, stride))
    slow = results(lambda maps, weight: F.conv2d(maps, weight, stride=stride, padding=1))
    for ours, expected in zip(fast, slow, strict=True):
        assert ours.shape == expected.shape
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("name", "size"), [("resnet18", 64), ("resnet18", 32), ("resnet50", 64), ("resnet18", 96)]
)
def test_a_network_computes_the_same(name: str, size: int) -> None:
    torch.manual_seed(0)
    plain = timm.create_model(name, num_classes=0).double()
    fast = copy.deepcopy(plain)
    with_small_maps(fast)
    assert any(isinstance(module, SmallMapConv2d) for module in fast.modules())
    images = torch.randn(3, 3, size, size, dtype=torch.float64)
    ours, expected = fast(images), plain(images)
    torch.testing.assert_close(ours, expected)
    ours.square().sum().backward()
    expected.square().sum().backward()
    for p, q in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-7)


def test_parameters_keep_their_names_and_values() -> None:
    plain = timm.create_model("resnet18", num_classes=0)
    fast = copy.deepcopy(plain)
    with_small_maps(fast)
    for (name, p), (other, q) in zip(
        fast.named_parameters(), plain.named_parameters(), strict=True
    ):
        assert name == other and p.equal(q) and p.requires_grad


def test_only_plain_convolutions_are_replaced() -> None:
    network = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1, bias=False, padding_mode="reflect"),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2, bias=False),
        nn.Conv2d(4, 4, 1, bias=False),
    )
    with_small_maps(network)
    assert all(type(module) is nn.Conv2d for module in network)


@pytest.mark.parametrize("size", [3, 4])
def test_larger_maps_and_those_that_are_not_square_are_convolved(size: int) -> None:
    module = SmallMapConv2d(3, 4, 3, padding=1, bias=False)
    for maps in (torch.randn(2, 3, size, size), torch.randn(2, 3, 2, size)):
        assert module(maps).equal(F.conv2d(maps, module.weight, padding=1))


def test_exported_networks_keep_their_convolutions() -> None:
    backbone = build_backbone(ModelConfig(backbone="resnet_small", stem="stride2"), 3, 32).eval()
    images = torch.randn(2, 3, 32, 32)
    traced = torch.jit.trace(backbone, images)
    assert "aten::linear" not in str(traced.inlined_graph)
    torch.testing.assert_close(traced(images), backbone(images), rtol=1e-4, atol=1e-5)
    exported = torch.export.export(backbone, (images,))
    assert "linear" not in str(exported.graph)
    torch.testing.assert_close(exported.module()(images), backbone(images), rtol=1e-4, atol=1e-5)
