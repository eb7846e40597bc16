"""The queue: what it holds, and how long it may be."""

import pytest
import torch

from built_methods import normal
from wcl.methods import RunInfo
from wcl.methods.queue import (
    Queue,
    checked_queue_size,
    negatives_queue_size,
    random_directions,
)
from wcl.system.errors import InputError


def test_new_rows_replace_the_oldest() -> None:
    initial, rows = random_directions(20, 3).double(), normal(0, 24, 3)
    torch.testing.assert_close(initial.norm(dim=1), torch.ones(20, dtype=torch.float64))
    queue = Queue(initial.clone())
    queue.enqueue(rows[:8])
    assert torch.equal(queue.rows, torch.cat([rows[:8], initial[8:]]))  # not yet full
    queue.enqueue(rows[8:16])
    assert not queue.is_full
    queue.enqueue(rows[16:])  # the last four wrap around over the first four
    assert torch.equal(queue.rows, torch.cat([rows[20:], rows[4:20]]))
    assert queue.is_full
    queue.enqueue(rows[:0])
    queue.enqueue(rows[:1])
    assert torch.equal(queue.rows[3:6], torch.stack([rows[23], rows[0], rows[5]]))


def test_rows_may_be_numbers() -> None:
    queue = Queue(torch.full((3,), -1))
    queue.enqueue(torch.tensor([5, 7]))
    assert queue.rows.tolist() == [5, 7, -1]


@pytest.mark.parametrize(
    ("images", "batch_size", "asked", "size"),
    [
        (1_281_167, 256, 0, 65536),
        (50_000, 256, 0, 12_500),
        (1_797, 256, 0, 449),
        (100, 64, 0, 64),
        (100, 64, 64, 64),
        (100, 64, 100, 100),
    ],
)
def test_the_default_size_fits_the_data(
    images: int, batch_size: int, asked: int, size: int
) -> None:
    assert negatives_queue_size(asked, 65536, RunInfo(images, batch_size, 1, 0)) == size


@pytest.mark.parametrize(
    ("size", "complaint"),
    [(7, r"--loss\.queue_size: 7 .* at least 8"), (65, r"--loss\.queue_size: 65 .* 64 images")],
)
def test_a_size_that_makes_no_sense_is_an_input_error(size: int, complaint: str) -> None:
    for queue_size in (negatives_queue_size, checked_queue_size):
        with pytest.raises(InputError, match=complaint):
            queue_size(size, 65536, RunInfo(64, 8, 4, 0))
