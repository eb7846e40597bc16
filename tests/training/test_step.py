"""Steps in pieces and on several processes against the plain step on the whole batch."""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from together import together
from wcl.config import LossConfig
from wcl.distributed.batch_norm import statistics_kept
from wcl.distributed.sharding import BatchShard, BatchSharding
from wcl.distributed.world import World
from wcl.methods import Method, build_method
from wcl.models.encoder import Embeddings
from wcl.models.multiview import embed_views, halves, join_images, of_images
from wcl.training.step import MultiViewModel, Step, gradient_step

BATCH = 16
CROPS = 3
CPU = torch.device("cpu")


class Network(nn.Module):
    """Small, in double precision, with or without batch norm and dropout."""

    def __init__(self, norm: bool, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8) if norm else nn.Identity(),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
        )
        self.g, self.phi = (
            nn.Sequential(
                nn.Linear(32, 16),
                nn.BatchNorm1d(16) if norm else nn.Identity(),
                nn.ReLU(),
                nn.Linear(16, 8),
            )
            for _ in range(2)
        )
        self.double()

    def forward(self, images: Tensor) -> Embeddings:
        h = self.body(images)
        return Embeddings(h, self.g(h), self.phi(h))


class Case(NamedTuple):
    name: str
    norm: bool = True
    piece: int = 0
    unreadable: tuple[int, ...] = ()
    dropout: float = 0.0
    method: str = "wcl"
    loss: LossConfig = LossConfig()


# The images of process 1 of 2 are the last eight, or with pieces the last half of each.
CASES = [
    Case("whole"),
    Case("simclr", method="simclr"),
    Case("labels from h", loss=LossConfig(labels_from="h")),
    Case("without the swap", loss=LossConfig(swapped=False)),
    Case("without batch norm", norm=False),
    Case("pieces without batch norm", norm=False, piece=4),
    Case("pieces", piece=4),
    Case("some unreadable", unreadable=(1, 9, 10)),
    Case("some unreadable in pieces", piece=8, unreadable=(0, 4, 5, 6, 7, 12)),
    Case(
        "labels from h in pieces",
        piece=4,
        unreadable=(1, 9, 10),
        loss=LossConfig(labels_from="h"),
    ),
    Case("a process without images", unreadable=tuple(range(8, 16))),
    Case("a process without images in pieces", piece=4, unreadable=(2, 3, 6, 7, 10, 11, 14, 15)),
]


def method(case: Case) -> Method:
    return build_method(case.method, case.loss, crops=True)


def views_of(index: np.ndarray) -> list[Tensor]:
    """Two views and the crops of these images; each image has its own, whoever makes them."""

    def view(image: int, number: int, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * int(image) + number)
        return torch.randn(3, size, size, generator=generator, dtype=torch.float64)

    kinds = [(range(2), 8), (range(2, 2 + CROPS), 6)]
    return [
        torch.stack([view(i, number, size) for number in numbers for i in index])
        if len(index)
        else torch.empty(0, 3, size, size, dtype=torch.float64)
        for numbers, size in kinds
    ]


def share_of(world: World, case: Case) -> tuple[BatchShard, list[Tensor]]:
    sharding = BatchSharding(BATCH, world, case.piece)
    everyone = np.random.default_rng(0).permutation(BATCH)
    wanted = everyone[sharding.positions(world.rank)]
    place = np.flatnonzero(~np.isin(wanted, everyone[list(case.unreadable)]))
    return BatchShard(sharding, everyone, place, CPU), views_of(wanted[place])


def take(world: World, case: Case) -> tuple[nn.Module, Step, BatchShard]:
    fabric = Fabric(accelerator="cpu", devices=1)
    network = Network(case.norm, case.dropout)
    model = fabric.setup_module(MultiViewModel(network, world))
    share, views = share_of(world, case)
    step = gradient_step(fabric, model, method(case), views, share, world)
    return network, step, share


def plain(case: Case) -> tuple[nn.Module, Tensor]:
    """The gradient of the whole loss, every piece embedded with its graph kept."""
    network = Network(case.norm, case.dropout)
    share, views = share_of(World(), case)
    counts = [len(rows) for rows in share.pieces]
    parts = [embed_views(network, of_images(views, len(share), rows)) for rows in share.pieces]
    full, small = join_images(parts, counts)
    losses = method(case)(*halves(full), small)
    losses.total.backward()
    return network, losses.total


def state(network: nn.Module) -> dict[str, Tensor]:
    gradients = {f"gradient of {n}": p.grad for n, p in network.named_parameters()}
    return {k: v for k, v in gradients.items() if v is not None} | dict(network.named_buffers())


def assert_alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_step_has_the_gradient_of_the_whole_loss(case: Case) -> None:
    network, step, share = take(World(), case)
    expected, loss = plain(case)
    assert len(share) == BATCH - len(case.unreadable)
    torch.testing.assert_close(step.losses.total, loss)
    assert_alike(state(network), state(expected))


def test_pieces_without_batch_norm_have_the_gradient_of_one_pass() -> None:
    pieces, _, _ = take(World(), Case("", norm=False, piece=2))
    once, _, _ = take(World(), Case("", norm=False))
    assert_alike(state(pieces), state(once))


def test_pieces_draw_the_same_dropout_in_both_passes() -> None:
    case = Case("", piece=4, dropout=0.5)
    torch.manual_seed(0)
    network, _, _ = take(World(), case)
    after = torch.rand(3)
    torch.manual_seed(0)
    expected, _ = plain(case)
    assert_alike(state(network), state(expected))
    assert torch.equal(after, torch.rand(3))  # the second pass did not move the generator on


def test_running_statistics_move_once_for_every_piece() -> None:
    network, _, _ = take(World(), Case("", piece=4))
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    # Four pieces, each with its views and its crops.
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [8, 8, 8]
    with statistics_kept(network):
        before = copy.deepcopy(dict(network.named_buffers()))
        network(torch.randn(4, 3, 8, 8, dtype=torch.float64))
        assert all(torch.equal(before[name], b) for name, b in network.named_buffers())
    assert all(norm.track_running_stats for norm in norms)


def steps_here(world: World) -> list[Any]:
    found = []
    for case in CASES:
        network, step, share = take(world, case)
        for parameter in network.parameters():  # as data parallel training would
            if parameter.grad is not None:
                parameter.grad = world.add(parameter.grad) / world.size
        labels = [label.tolist() for label in step.losses.weak_labels]
        found.append((state(network), world.add(step.losses.total), labels, share.index.tolist()))
    return found


def test_two_and_four_processes_have_the_gradient_labels_and_statistics_of_one(
    tmp_path: Path,
) -> None:
    alone = steps_here(World())
    for size in (2, 4):
        for found in together(size, tmp_path / str(size), steps_here):
            for case, one, many in zip(CASES, alone, found, strict=True):
                assert one[3] == many[3], case.name
                assert one[2] == many[2], case.name
                torch.testing.assert_close(one[1], many[1])
                assert_alike(one[0], many[0])
