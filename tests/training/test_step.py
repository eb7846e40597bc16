"""Steps in micro-batches and on several processes against the plain step on the whole batch."""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from built_methods import DIM, small_encoder
from together import together
from wcl.distributed.batch_norm import frozen_statistics
from wcl.distributed.sharding import BatchShard, BatchSharding
from wcl.distributed.world import World
from wcl.methods import Method, RunInfo, find_method
from wcl.models.encoder import Encoder
from wcl.models.multiview import concat_images, select_images
from wcl.training.step import MultiViewModel, Step, gradient_step

BATCH = 16
CROPS = 3
LABELS = torch.arange(64) % 5
CPU = torch.device("cpu")


class Network(Encoder):
    """Small, in double precision, with or without batch norm and dropout."""

    def __init__(self, norm: bool, dropout: float = 0.0) -> None:
        nn.Module.__init__(self)
        torch.manual_seed(0)
        self.description = small_encoder(()).description
        self.feature_dim = 32
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8) if norm else nn.Identity(),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
        )
        heads = {
            name: nn.Sequential(
                nn.Linear(32, 16),
                nn.BatchNorm1d(16) if norm else nn.Identity(),
                nn.ReLU(),
                nn.Linear(16, DIM),
            )
            for name in ("g", "phi")
        }
        self.heads = nn.ModuleDict(heads)


class Case(NamedTuple):
    name: str
    norm: bool = True
    micro: int = 0
    unreadable: tuple[int, ...] = ()
    dropout: float = 0.0
    method: str = "wcl"
    loss: dict[str, Any] = {}  # noqa: RUF012


OTHERS: dict[str, dict[str, Any]] = {
    "moco": {"queue_size": 24},
    "mochi": {"hardest": 6, "mixtures": 5, "query_mixtures": 4, "warmup_epochs": 0},
    "nnclr": {},
    "pcl": {"clusters": 4},
    "instdisc": {"negatives": 30},
    "simclrv2": {"queue_size": 24},
    "byol": {},
    "simsiam": {},
    "supcon": {},
    "supervised": {},
    "fncancel": {"support": 2, "top_k": 3, "threshold": 0.0},
    "adpclr": {"k": 3, "warmup": 0},
    "swav": {"prototypes": 6, "freeze_epochs": 0, "queue_size": 24},
}
NO_IMAGES_ON_RANK_1 = (2, 3, 6, 7, 10, 11, 14, 15)
# The images of process 1 of 2 are the last eight, or with micro-batches the last half of each.
CASES = [
    Case("whole"),
    Case("simclr", method="simclr"),
    Case("labels from h", loss={"labels_from": "h"}),
    Case("without the swap", loss={"swapped": False}),
    Case("without batch norm", norm=False),
    Case("micro-batches without batch norm", norm=False, micro=4),
    Case("micro-batches", micro=4),
    Case("some unreadable", unreadable=(1, 9, 10)),
    Case("some unreadable in micro-batches", micro=8, unreadable=(0, 4, 5, 6, 7, 12)),
    Case("labels from h, micro-batches", micro=4, unreadable=(1, 9), loss={"labels_from": "h"}),
    Case("a process without images", unreadable=tuple(range(8, 16))),
    Case("a process without images, micro-batches", micro=4, unreadable=NO_IMAGES_ON_RANK_1),
    *(
        Case(f"{name}, a process without images", True, 0, tuple(range(8, 16)), 0.0, name, loss)
        for name, loss in OTHERS.items()
        if name in ("fncancel", "adpclr", "mochi", "nnclr", "instdisc")
    ),
    *(
        Case(f"{name}{' in micro-batches' if micro else ''}", True, micro, (1, 9), 0.0, name, loss)
        for name, loss in OTHERS.items()
        for micro in (0, 4)
    ),
]


def built(case: Case) -> Method:
    found = find_method(case.method)
    crops = CROPS if found.supports_crops else 0
    network = Network(case.norm, case.dropout)
    info = RunInfo(64, BATCH, 4, crops, LABELS)
    return found(network, found.Settings(**case.loss), info).double()


def views_of(index: np.ndarray, support: int, crops: int) -> list[Tensor]:
    """All views of these images; each image has its own, whoever makes them."""

    def view(image: int, number: int, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * int(image) + number)
        return torch.randn(3, size, size, generator=generator, dtype=torch.float64)

    found = []
    full = 2 + support
    for numbers, size in ((range(2), 8), (range(2, full), 8), (range(full, full + crops), 6)):
        group = torch.empty(len(numbers), len(index), 3, size, size, dtype=torch.float64)
        for place, number in enumerate(numbers):
            for row, image in enumerate(index):
                group[place, row] = view(image, number, size)
        found += [group] if len(group) else []
    return found


def local_part(world: World, case: Case, method: Method) -> tuple[BatchShard, list[Tensor]]:
    sharding = BatchSharding(BATCH, world, case.micro)
    everyone = np.random.default_rng(0).permutation(BATCH)
    wanted = everyone[sharding.positions(world.rank)]
    place = np.flatnonzero(~np.isin(wanted, everyone[list(case.unreadable)]))
    support, crops = method.support_views(method.settings), method.info.crops
    return sharding.shard(everyone, place, CPU), views_of(wanted[place], support, crops)


def take(world: World, case: Case) -> tuple[Method, Step, BatchShard]:
    fabric = Fabric(accelerator="cpu", devices=1)
    method = built(case)
    model = fabric.setup_module(MultiViewModel(method, world))
    shard, views = local_part(world, case, method)
    step = gradient_step(fabric, model, method, views, shard, world)
    method.after_step(0.5)
    return method, step, shard


def plain(case: Case) -> tuple[Method, Tensor]:
    """The gradient of the whole loss, every micro-batch embedded with its graph kept."""
    method = built(case)
    shard, views = local_part(World(), case, method)
    parts = [select_images(views, rows) for rows in shard.micro_batches]
    targets = concat_images([method.targets(part) for part in parts])
    losses = method.loss(concat_images([method.embed(part) for part in parts]), targets, shard)
    losses.total.backward()
    method.after_step(0.5)
    return method, losses.total


def state(network: nn.Module) -> dict[str, Tensor]:
    gradients = {f"gradient of {n}": p.grad for n, p in network.named_parameters()}
    return {k: v for k, v in gradients.items() if v is not None} | dict(network.named_buffers())


def assert_alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_step_has_the_gradient_of_the_whole_loss(case: Case) -> None:
    network, step, shard = take(World(), case)
    expected, loss = plain(case)
    assert len(shard) == BATCH - len(case.unreadable)
    torch.testing.assert_close(step.losses.total, loss)
    assert_alike(state(network), state(expected))


def test_micro_batches_without_batch_norm_have_the_gradient_of_one_pass() -> None:
    micro, _, _ = take(World(), Case("", norm=False, micro=2))
    once, _, _ = take(World(), Case("", norm=False))
    assert_alike(state(micro), state(once))


def test_micro_batches_draw_the_same_dropout_in_both_passes() -> None:
    case = Case("", micro=4, dropout=0.5)
    torch.manual_seed(0)
    network, _, _ = take(World(), case)
    after = torch.rand(3)
    torch.manual_seed(0)
    expected, _ = plain(case)
    assert_alike(state(network), state(expected))
    assert torch.equal(after, torch.rand(3))  # the second pass did not move the generator on


def test_running_statistics_move_once_for_every_micro_batch() -> None:
    network, _, _ = take(World(), Case("", micro=4))
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    # Four micro-batches, each with its views and its crops.
    assert [int(norm.num_batches_tracked or 0) for norm in norms] == [8, 8, 8]
    with frozen_statistics(network):
        before = copy.deepcopy(dict(network.named_buffers()))
        network.encoder(torch.randn(4, 3, 8, 8, dtype=torch.float64))
        assert all(torch.equal(before[name], b) for name, b in network.named_buffers())
    assert all(norm.track_running_stats for norm in norms)


def steps_here(world: World) -> list[Any]:
    found = []
    for case in CASES:
        network, step, shard = take(world, case)
        for parameter in network.parameters():  # as data parallel training would
            if parameter.grad is not None:
                parameter.grad = world.all_reduce_sum(parameter.grad) / world.size
        labels = [label.tolist() for label in step.losses.weak_labels]
        if step.losses.positives is not None:
            labels.append(step.losses.positives.tolist())
        found.append(
            (state(network), world.all_reduce_sum(step.losses.total), labels, shard.index.tolist())
        )
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
