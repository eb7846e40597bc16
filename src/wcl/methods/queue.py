"""A queue of the last rows, for methods that compare a batch with more than itself."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.methods.method import RunInfo
from wcl.system.errors import InputError


class Queue(nn.Module):
    """The last rows, of which new ones replace the oldest; a part of the method's state.

    Args:
        rows: (size, …) the rows to start with.
    """

    rows: Tensor
    position: Tensor
    """Number of rows that ever entered."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def __len__(self) -> int:
        return len(self.rows)

    @torch.no_grad()
    def enqueue(self, rows: Tensor) -> None:
        """Replace the oldest rows by these (n, …), of which there are at most `len(self)`."""
        places = torch.arange(len(rows), device=self.rows.device) + self.position
        self.rows[places % len(self)] = rows.to(self.rows.dtype)
        self.position.add_(len(rows))

    @property
    def is_full(self) -> Tensor:
        """Return whether all initial rows were replaced, as a tensor on the device."""
        return self.position >= len(self)


def random_directions(count: int, dim: int) -> Tensor:
    """Return (count, dim) random unit vectors, for a queue that nothing has entered yet."""
    return F.normalize(torch.randn(count, dim), dim=1)


def checked_queue_size(queue_size: int, default: int, info: RunInfo) -> int:
    """Return the size of a queue of embeddings of past images.

    Args:
        queue_size: the setting; 0 for the default.
        default: raised to the size of a batch if it is less.
        info: facts about the run.

    Raises:
        InputError: the queue is shorter than a batch or longer than the number of images.
    """
    if not queue_size:
        return max(info.batch_size, default)
    if queue_size < info.batch_size:
        raise InputError(
            f"--loss.queue_size: {queue_size} is less than a batch of {info.batch_size} images; "
            f"use at least {info.batch_size}, or leave it out"
        )
    if queue_size > info.images:
        raise InputError(
            f"--loss.queue_size: {queue_size} is more than the {info.images} images, so the queue "
            f"would hold images twice; use at most {info.images}, or leave it out"
        )
    return queue_size


def negatives_queue_size(queue_size: int, largest: int, info: RunInfo) -> int:
    """Return the size of a queue of negatives, checked in the same way.

    By default it is a quarter of the images, but at most `largest`, the size that the authors use
    on ImageNet: in a longer queue an image would often meet itself, which is no negative.
    """
    return checked_queue_size(queue_size, min(largest, info.images // 4), info)
