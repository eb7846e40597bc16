"""Convolutions of maps of one or four pixels as matrix products, on CPUs.

The last stage of a ResNet sees maps of 2×2 pixels where images are small, and 1×1 in small crops.
There, every output pixel of a 3×3 convolution sees every input pixel, so the layer is one matrix
that maps all pixels of all channels; most of what a convolution multiplies is padding. With 512
maps of 256 channels, it is more than five times as fast on one core (`python -m benchmarks maps`).
From 3×3 pixels on the matrix holds zeros, and the gain is lost with small batches.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LARGEST = 2  # pixels in height and width


class SmallMapConv2d(nn.Conv2d):
    """A 3×3 convolution that multiplies by a matrix where the map is small."""

    def forward(self, maps: Tensor) -> Tensor:
        size = maps.shape[-1]
        # Exported graphs keep the convolution, whatever the size of the example.
        if (
            torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
            or torch.compiler.is_exporting()
            or maps.device.type != "cpu"
            or not 1 <= size <= _LARGEST
            or maps.shape[-2] != size
        ):
            return super().forward(maps)
        return convolve_small_map(maps, self.weight, self.stride[0])


def convolve_small_map(maps: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Convolve square maps of one or four pixels with a 3×3 kernel and a padding of 1.

    Args:
        maps: (N, C, S, S) with S = 1 or 2.
        weight: (D, C, 3, 3).
        stride: 1 or 2.

    Returns:
        (N, D, T, T) with T = S for a stride of 1, and 1 for a stride of 2; channels last.

    >>> maps, weight = torch.randn(5, 3, 2, 2), torch.randn(4, 3, 3, 3)
    >>> expected = F.conv2d(maps, weight, padding=1)
    >>> torch.allclose(convolve_small_map(maps, weight), expected, atol=1e-5)
    True
    """
    count, channels, size = maps.shape[:3]
    out = (size - 1) // stride + 1
    # The tap of the kernel through which each output pixel sees each input pixel.
    pixels = [(row, column) for row in range(size) for column in range(size)]
    taps = [
        3 * (row - stride * at_row + 1) + column - stride * at_column + 1
        for at_row in range(out)
        for at_column in range(out)
        for row, column in pixels
    ]
    kernel = weight.permute(2, 3, 0, 1).flatten(0, 1)[torch.tensor(taps, device=weight.device)]
    kernel = kernel.unflatten(0, (out * out, size * size)).transpose(1, 2)  # (T², D, S², C)
    matrix = kernel.reshape(-1, size * size * channels)
    product = F.linear(maps.permute(0, 2, 3, 1).reshape(count, matrix.shape[1]), matrix)
    return product.view(count, out, out, len(weight)).permute(0, 3, 1, 2)


def with_small_maps(network: nn.Module) -> None:
    """Let the 3×3 convolutions of a network multiply by matrices where maps are small, in place.

    Parameters, their names and the results (but for rounding) stay the same.
    """
    for name, module in list(network.named_children()):
        if type(module) is nn.Conv2d and _is_plain(module):
            faster = SmallMapConv2d(
                module.in_channels,
                module.out_channels,
                3,
                module.stride[0],
                1,
                bias=False,
                device="meta",
            )
            faster.weight = module.weight
            network.register_module(name, faster.train(module.training))
        else:
            with_small_maps(module)


def _is_plain(module: nn.Conv2d) -> bool:
    return (
        module.kernel_size == (3, 3)
        and module.stride in ((1, 1), (2, 2))
        and module.padding == (1, 1)
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.bias is None
        and module.padding_mode == "zeros"
    )
