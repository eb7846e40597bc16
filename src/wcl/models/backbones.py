"""Backbones by name: those of timm, and two small ones for CPUs.

timm takes a second to import and `conv_tiny` does without it, so functions import it.
"""

from itertools import pairwise
from typing import Any, cast

from torch import nn

from wcl.config import ModelConfig
from wcl.models.image_sizes import size_options, size_problem, working_sizes
from wcl.models.small_maps import with_small_maps
from wcl.system.errors import InputError, did_you_mean

# Networks for CPUs: a ResNet with 1.2 M parameters and plain convolutions with 0.1 M.
_SMALL = ("resnet_small", "conv_tiny")


def build_backbone(model: ModelConfig, channels: int, size: int) -> nn.Module:
    """Build a backbone with pooled output.

    Raises:
        InputError: there is no such backbone, or it cannot have this stem.
    """
    name = model.backbone
    if name == "resnet_small":
        backbone = _resnet_small(channels)
    elif name == "conv_tiny":
        backbone = _conv_tiny(channels)
    else:
        backbone = _from_timm(name, channels, size)
    if model.stem != "native":
        _shrink_stem(backbone, model)
    with_small_maps(backbone)
    return backbone


def _from_timm(name: str, channels: int, size: int) -> nn.Module:
    check_timm_name(name)
    import timm

    def build(size: int) -> nn.Module:
        return timm.create_model(name, **timm_options(name, channels, size))

    try:
        return build(size)
    except (RuntimeError, AssertionError, ValueError) as error:
        known = timm.get_pretrained_cfg(name)
        native = known.input_size[-1] if known else size
        if sizes := working_sizes(build, channels, size, native):
            raise InputError(size_problem("--image_size", name, size, error, sizes)) from error
        raise InputError(f"--model.backbone: {name}: {error}") from error


def check_timm_name(name: str) -> bool:
    """Return whether timm builds the backbone, or else this package.

    Raises:
        InputError: neither does.
    """
    if name in _SMALL:
        return False
    import timm

    if not timm.is_model(name):
        known = [*timm.list_models(), *_SMALL]
        raise InputError(
            f"--model.backbone: timm has no model {name!r}{did_you_mean(name, known)}; "
            "timm.list_models() lists all names"
        )
    try:
        timm.get_pretrained_cfg(name)  # fails for an unknown tag
    except RuntimeError as error:
        raise InputError(f"--model.backbone: {name}: {error}") from error
    return True


def timm_options(name: str, channels: int, size: int) -> dict[str, Any]:
    """Return the arguments of `timm.create_model` besides the name.

    >>> timm_options("swin_tiny_patch4_window7_224", 3, 64)
    {'num_classes': 0, 'in_chans': 3, 'img_size': 64, 'strict_img_size': False}
    """
    return {"num_classes": 0, "in_chans": channels, **size_options(name, size)}


def is_timm_model(model: ModelConfig) -> bool:
    """Return whether timm builds the same network by name: the stem and the model are its own."""
    return model.stem == "native" and model.backbone not in _SMALL


def _resnet_small(channels: int) -> nn.Module:
    """Build timm's ResNet with one basic block in each of four stages."""
    from timm.models.resnet import BasicBlock, ResNet

    return ResNet(
        BasicBlock,  # type: ignore[arg-type]  # timm annotates an instance, and takes the class
        (1, 1, 1, 1),
        num_classes=0,
        in_chans=channels,
        channels=(32, 64, 128, 256),
        stem_type="deep",  # the plain stem always has 64 channels
        stem_width=16,
        # Residual branches that start at zero help deep networks but slow down this one: on the
        # digits, NT-Xent is 5.6 after 80 steps with it and 4.6 without.
        zero_init_last=False,
    )


def _conv_tiny(channels: int) -> nn.Module:
    """Build four plain blocks of 16 to 128 channels, each halving the image, for tiny gray images.

    On the digits it beats a ResNet of the same widths: with three labels per class, SimCLR reaches
    0.84 with it and 0.81 with the ResNet, in less time.
    """
    parts: list[nn.Module] = []
    for before, width in pairwise((channels, 16, 32, 64, 128)):
        parts += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        parts += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    network: Any = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.num_features = 128
    return cast(nn.Module, network)


def _shrink_stem(backbone: nn.Module, model: ModelConfig) -> None:
    """Replace the 7×7 convolution by a 3×3 with the stride of the stem and drop the max-pool."""
    from timm.models.resnet import ResNet

    if not isinstance(backbone, ResNet):
        raise InputError(
            f"--model.stem: {model.stem} is for ResNets; use native for {model.backbone}"
        )
    stride = 1 if model.stem == "cifar" else 2
    backbone.maxpool = nn.Sequential()
    old = backbone.conv1
    if isinstance(old, nn.Sequential):  # a deep stem already begins with a 3×3
        first = old[0]
        assert isinstance(first, nn.Conv2d)
        first.stride = (stride, stride)
        return
    backbone.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, stride, 1, bias=False)
    nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
