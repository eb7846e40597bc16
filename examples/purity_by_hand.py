"""What WCL would gain if its weak labels were purer, or less pure: their purity set by hand.

A method of one's own in runs of wcl. In every step the groups keep the sizes that connected
components gave them, but not their members: either the groups are those that were found, or they
are filled with images of one class after another; then a share of the images, drawn anew, change
places. Classes are used here, so this measures a mechanism and makes no encoder to keep.

    python examples/purity_by_hand.py digits --groups found --kept 0.8 0.6 0.4 0
    python examples/purity_by_hand.py cifar10 --data DATA/cifar10 --groups classes --kept 1 0.6

SimCLR and WCL as it is are those of `wcl reproduce`; with its folder as --out they are not made
again. The others are in its folder by-hand: their own files say method wcl, for wcl does not know
this one, so a report of them shows other groups than they learned from. Stopped with Ctrl-C, the
same command goes on.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from wcl.config import LossConfig, ReproduceConfig
from wcl.distributed.sharding import BatchShard
from wcl.methods import METHODS
from wcl.methods.wcl import WCL
from wcl.paper import sources
from wcl.paper.cells import ResultStore, open_result_store, settings_of
from wcl.paper.purity import worth_of_weak_labels
from wcl.paper.scales import at_scale
from wcl.paper.tables import Cell, only
from wcl.system.errors import InputError, RunError
from wcl.training.setup import images_of

# Table and scale of `wcl reproduce`, the rows without the method's name, and the figure.
LABORATORIES = {
    "digits": ("mechanisms", "digits", "", "3"),
    "cifar10": ("cifar", "cpu", ", batch 256", "top1"),
    "smoke": ("mechanisms", "smoke", "", "3"),
}


class ByHand(WCL):
    """WCL whose weak labels are as pure as one wishes.

    Args:
        classes: of all images of the run.
        groups: which are made impure: those "found", or those of "classes".
        kept: the share of the images that stay in their group.
        config, crops: as of every method.
    """

    def __init__(
        self, classes: Tensor, groups: str, kept: float, config: LossConfig, crops: bool = False
    ) -> None:
        super().__init__(config, crops)
        self._classes, self._groups, self._kept = classes, groups, kept

    def weak_labels(self, v1: Tensor, v2: Tensor, share: BatchShard | None) -> tuple[Tensor, ...]:
        assert share is not None
        classes = self._classes.to(v1.device)[share.rows]
        both = super().weak_labels(v1, v2, share)
        if self._groups == "classes":
            both = tuple(filled_by_class(labels, classes) for labels in both)
        return tuple(moved(labels, 1 - self._kept) for labels in both)


def filled_by_class(labels: Tensor, classes: Tensor) -> Tensor:
    """Groups of the same sizes, filled with images of one class after another.

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
    """The same groups after a share of the images, drawn at random, changed places.

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


def accuracy(shop: ResultStore, cell: Cell, seed: int, figure: str) -> float:
    """In percent; trains and measures, as far as that is not done."""
    if not shop.make(cell, seed):
        sys.exit("give the same command again to go on")
    found = shop.found(cell, seed)
    assert found is not None
    return found[figure]


def describe_os_error(values: Sequence[float], sign: str = "") -> str:
    """Mean ± standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.1f}{deviation}"


def fraction(word: str) -> float:
    """A number between 0 and 1."""
    value = float(word)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{word} is not between 0 and 1")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    laboratories = "the runs to change; smoke takes seconds, and its figures mean nothing"
    kept, seeds = [0.8, 0.6, 0.4, 0.0], [0, 1, 2]
    parser.add_argument("laboratory", choices=LABORATORIES, help=laboratories)
    parser.add_argument("--data", default="", help="where CIFAR-10 is")
    parser.add_argument(
        "--groups",
        choices=("found", "classes"),
        default="found",
        help="groups as WCL finds them, which is the default, or of images of one class",
    )
    parser.add_argument(
        "--kept",
        type=fraction,
        nargs="+",
        default=kept,
        help=f"shares of the images that stay in their group, a row for each; default {kept}",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds, help=f"default {seeds}")
    parser.add_argument("--threads", type=int, default=1, help="of the processor; default 1")
    parser.add_argument("--out", default="runs/laboratory", help="default runs/laboratory")
    given = parser.parse_args()
    given.seeds, given.kept = ([*dict.fromkeys(each)] for each in (given.seeds, given.kept))

    name, scale, row, figure = LABORATORIES[given.laboratory]
    cells = {cell.row: cell for cell in only(at_scale(name, scale), "100 epochs" if row else "")}
    simclr, ours = cells[f"SimCLR{row}"], cells[f"WCL{row}"]
    places = sources.given([ours.run.data], given.data)
    sources.check([ours.run.data], places)
    config = ReproduceConfig(threads=given.threads, devices=1, out=given.out)
    shop = ResultStore(open_result_store(config), config, places)
    base = [accuracy(shop, simclr, seed, figure) for seed in given.seeds]
    table = Table("images that stay", "pure pairs", "accuracy", "gain over SimCLR")
    table.add_row("SimCLR", "", describe_os_error(base), "")

    def add(name: str, shop: ResultStore, measured: Sequence[float]) -> None:
        runs = [shop.run_folder(ours.run, seed) for seed in given.seeds]
        worth = [worth_of_weak_labels(run) or {} for run in runs]
        table.add_row(
            name,
            describe_os_error([100 * each["pair_precision"] for each in worth]),
            describe_os_error(measured),
            describe_os_error([a - b for a, b in zip(measured, base, strict=True)], "+"),
        )

    add("WCL", shop, [accuracy(shop, ours, seed, figure) for seed in given.seeds])
    for kept in given.kept:
        folder = shop.folder / "by-hand" / f"{given.groups}-{kept:g}"
        by_hand = ResultStore(open_result_store(replace(config, out=str(folder))), config, places)
        measured = []
        for seed in given.seeds:
            of_run = settings_of(ours.run, seed, places[ours.run.data], config)
            classes = images_of(of_run).labels
            assert classes is not None
            print(f"{given.groups}, {kept:g} stay, seed {seed}", file=sys.stderr)
            METHODS["wcl"] = partial(ByHand, classes, given.groups, kept)
            measured.append(accuracy(by_hand, ours, seed, figure))
        add(f"{kept:g} ({given.groups})", by_hand, measured)
    Console().print(table)
    print("pure pairs: % of the pairs within groups that are of one class")
    print(f"the runs are in {shop.folder} and its folder by-hand")


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
