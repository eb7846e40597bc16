"""Files of weights as others publish them, for the tiny models that timm tests itself with."""

from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn


def trained_model(name: str = "test_resnet", **options: Any) -> nn.Module:
    """A model of timm whose weights and running statistics are unlike any initial ones."""
    torch.manual_seed(7)
    model: nn.Module = timm.create_model(name, **options)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.02 * torch.rand_like(tensor))
    return model.eval()


def weights_file(path: Path, name: str = "test_resnet", **options: Any) -> Path:
    """All weights of such a model, its classifier included, in a safetensors or a .pth file."""
    weights = trained_model(name, **options).state_dict()
    if path.suffix == ".safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path)
    return path


def backbone(name: str = "test_resnet", **options: Any) -> dict[str, Tensor]:
    """The weights of such a model without its classifier."""
    whole = trained_model(name).state_dict()
    wanted = timm.create_model(name, num_classes=0, **options).state_dict()
    return {key: whole[key] for key in wanted}
