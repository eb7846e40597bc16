"""The bytes that a training step keeps."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class KeptTensors:
    """Tensors that stay alive, of which those that share memory count once."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}  # alive: no address is used twice
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: Tensor) -> Tensor:
        """Add a tensor and return it."""
        storage = tensor.untyped_storage()
        self._storages[storage.data_ptr()] = storage
        return tensor

    def nbytes(self, besides: "KeptTensors | None" = None) -> int:
        """Count the bytes, without those that are also in another collection."""
        others = {} if besides is None else besides._storages
        return sum(s.nbytes() for place, s in self._storages.items() if place not in others)


@contextmanager
def saved_for_backward() -> Iterator[KeptTensors]:
    """Collect the tensors that autograd saves for the backward pass within the context."""
    kept = KeptTensors()
    with torch.autograd.graph.saved_tensors_hooks(kept.add, lambda tensor: tensor):
        yield kept


def weights_of(model: nn.Module) -> Iterator[Tensor]:
    """Yield the parameters and buffers of a model."""
    yield from model.parameters()
    yield from model.buffers()


def optimizer_state(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield the tensors that an optimizer keeps, which exist after its first step."""
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, Tensor))


def gradient_bytes(model: nn.Module) -> int:
    """Count the bytes of the gradients of all parameters that have one."""
    return sum(p.nbytes for p in model.parameters() if p.requires_grad)
