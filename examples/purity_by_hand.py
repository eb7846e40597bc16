"""What WCL would gain if its weak labels were purer, or less pure: their purity set by hand.

A study with a method of its own, `ByHand`. In every step the groups keep the sizes that connected
components gave them, but not their members: either the groups are those that were found, or they
are filled with images of one class after another; then a random share of the images change places.
True classes are used, so this measures a mechanism and does not train an encoder to keep.

    python examples/purity_by_hand.py digits --groups found --kept 0.8 0.6 0.4 0
    python examples/purity_by_hand.py cifar10 --data DATA/cifar10 --groups classes --kept 1 0.6

The rows of SimCLR and WCL are those of `wcl reproduce`; with its folder as --out they are not
trained again. If it is stopped with Ctrl-C, the same command continues.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from wcl.config import ReproduceConfig
from wcl.config.bounds import between
from wcl.distributed.sharding import BatchShard
from wcl.methods.wcl import WCL, WCLSettings
from wcl.paper import sources
from wcl.paper.pairs import pair_quality
from wcl.paper.result_store import ResultStore, open_result_store
from wcl.paper.scales import at_scale
from wcl.paper.tables import Cell, only
from wcl.system.errors import InputError, RunError

# Table and scale of `wcl reproduce`, the rows without the method's name, and the figure.
EXPERIMENTS = {
    "digits": ("mechanisms", "digits", "", "3"),
    "cifar10": ("cifar", "cpu", ", batch 256", "top1"),
    "smoke": ("mechanisms", "smoke", "", "3"),
}


@dataclass
class ByHandSettings(WCLSettings):
    """Settings of WCL, and how pure its weak labels are."""

    groups: Literal["found", "classes"] = "found"
    """Whether to start from the groups that WCL finds, or from groups of images of one class."""
    kept: Annotated[float, between(0, 1)] = 1.0
    """Share of the images that stay in their group."""


class ByHand(WCL):
    """WCL with weak labels of a chosen purity."""

    Settings: ClassVar[type[Any]] = ByHandSettings

    def batch_labels(self, w1: Tensor, w2: Tensor, shard: BatchShard) -> tuple[Tensor, ...]:
        if self.info.labels is None:
            raise InputError("--data: weak labels of a chosen purity need data with labels")
        labels = super().batch_labels(w1, w2, shard)
        if self.settings.groups == "classes":
            classes = self.info.labels.to(w1.device)[shard.image_index]
            labels = tuple(filled_by_class(one, classes) for one in labels)
        return tuple(moved(one, 1 - self.settings.kept) for one in labels)


def filled_by_class(labels: Tensor, classes: Tensor) -> Tensor:
    """Return groups of the same sizes, filled with images of one class after another.

    >>> groups = filled_by_class(torch.tensor([0, 1, 1, 0, 3, 3]), torch.tensor([1, 2, 1, 2, 1, 2]))
    >>> groups.bincount().tolist()
    [2, 2, 0, 2]
    >>> len(groups[[0, 2, 4]].unique()), len(groups[[1, 3, 5]].unique())
    (2, 2)
    """
    shuffle = partial(torch.randperm, device=labels.device)
    groups = shuffle(len(labels))[labels].argsort()  # group by group, in a random order
    images = shuffle(len(labels))
    members = images[shuffle(int(classes.max()) + 1)[classes[images]].argsort()]
    filled = torch.empty_like(labels)
    filled[members] = labels[groups]
    return filled


def moved(labels: Tensor, share: float) -> Tensor:
    """Return the groups after a random share of the images has changed places.

    >>> moved(torch.tensor([0, 0, 2, 2]), 0.0).tolist()
    [0, 0, 2, 2]
    >>> moved(torch.tensor([0, 0, 2, 2]), 1.0).bincount().tolist()
    [2, 0, 2]
    """
    shuffle = partial(torch.randperm, device=labels.device)
    drawn = shuffle(len(labels))[: round(share * len(labels))]
    result = labels.clone()
    result[drawn] = labels[drawn[shuffle(len(drawn))]]
    return result


def accuracy(store: ResultStore, cell: Cell, seed: int, figure: str) -> float:
    """Return an accuracy in percent; train and measure if that is not done yet."""
    if not store.make(cell, seed):
        sys.exit("start the same command again to continue")
    figures = store.figures(cell, seed)
    assert figures is not None
    return figures[figure]


def mean_and_deviation(values: Sequence[float], sign: str = "") -> str:
    """Format mean ± standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.1f}{deviation}"


def fraction(text: str) -> float:
    """Parse a number between 0 and 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kept, seeds = [0.8, 0.6, 0.4, 0.0], [0, 1, 2]
    parser.add_argument(
        "experiment",
        choices=EXPERIMENTS,
        help="the runs to change; smoke takes seconds, and its figures mean nothing",
    )
    parser.add_argument("--data", default="", help="where CIFAR-10 is")
    parser.add_argument(
        "--groups",
        choices=("found", "classes"),
        default="found",
        help="start from groups as WCL finds them (default), or from groups of one class",
    )
    parser.add_argument(
        "--kept",
        type=fraction,
        nargs="+",
        default=kept,
        help=f"shares of the images that stay in their group, a row for each; default {kept}",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds, help=f"default {seeds}")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; default 1")
    parser.add_argument("--out", default="runs/purity", help="default runs/purity")
    args = parser.parse_args()
    args.seeds, args.kept = ([*dict.fromkeys(each)] for each in (args.seeds, args.kept))

    name, scale, row, figure = EXPERIMENTS[args.experiment]
    cells = {cell.row: cell for cell in only(at_scale(name, scale), "100 epochs" if row else "")}
    simclr, wcl = cells[f"SimCLR{row}"], cells[f"WCL{row}"]
    places = sources.given([wcl.run.data], args.data)
    sources.check([wcl.run.data], places)
    config = ReproduceConfig(threads=args.threads, devices=1, out=args.out)
    store = ResultStore(open_result_store(config), config, places)
    base = [accuracy(store, simclr, seed, figure) for seed in args.seeds]
    table = Table("images that stay", "pure pairs", "accuracy", "gain over SimCLR")
    table.add_row("SimCLR", "", mean_and_deviation(base), "")
    rows = {"WCL": wcl}
    for share in args.kept:
        changes = {"method": "purity_by_hand:ByHand", "loss.groups": args.groups}
        run = replace(wcl.run, changes={**wcl.run.changes, **changes, "loss.kept": share})
        rows[f"{share:g} ({args.groups})"] = replace(wcl, run=run)
    for row, cell in rows.items():
        print(row, file=sys.stderr)
        measured = [accuracy(store, cell, seed, figure) for seed in args.seeds]
        runs = [store.run_folder(cell.run, seed) for seed in args.seeds]
        worth = [pair_quality(run) for run in runs]
        table.add_row(
            row,
            mean_and_deviation([100 * each["pair_precision"] for each in worth]),
            mean_and_deviation(measured),
            mean_and_deviation([a - b for a, b in zip(measured, base, strict=True)], "+"),
        )
    Console().print(table)
    print("pure pairs: % of the pairs within groups that are of one class")
    print(f"the runs are in {store.folder}")


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
