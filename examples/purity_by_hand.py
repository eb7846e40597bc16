"""What WCL would gain if its weak labels were purer, or less pure: their purity set by hand.

A method of one's own in a run of wcl. In every step the groups keep the sizes that connected
components gave them, but their members are changed: either the groups that were found stay, or
they are filled with images of one class after another; then a share of the images, drawn anew,
change places. Classes are used here, so this measures a mechanism and makes no encoder to keep.

    python examples/purity_by_hand.py digits --groups found --kept 1 0.8 0.6 0.4 0
    python examples/purity_by_hand.py cifar10-cpu --data DATA/cifar10 --groups classes --kept 1 0.5
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import wcl
from wcl.config import LossConfig
from wcl.data import open_splits
from wcl.demo import accuracies
from wcl.methods import METHODS, WCL
from wcl.metrics_lines import read_metrics
from wcl.new_file import written_whole
from wcl.sharing import Share

# The settings of the runs in docs/results.md that these stand beside.
CHANGES: dict[str, dict[str, Any]] = {
    "digits": {},
    "cifar10-cpu": {"limit": 20_000, "epochs": 10},
}


class ByHand(WCL):
    """WCL whose weak labels are as pure as one wishes.

    Args:
        classes: of all images of the source.
        groups: which are made impure: those "found", or those of "classes".
        kept: the share of the images that stay in their group.
        config, crops: as of every method.
    """

    def __init__(
        self, classes: Tensor, groups: str, kept: float, config: LossConfig, crops: bool = False
    ) -> None:
        super().__init__(config, crops)
        self._classes, self._groups, self._kept = classes, groups, kept

    def weak_labels(self, v1: Tensor, v2: Tensor, share: Share | None) -> tuple[Tensor, ...]:
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


def figures(out: Path, recipe: str, data: str, changes: dict[str, Any]) -> dict[str, float]:
    """Train and measure, as far as that is not done: accuracy in %, what weak labels were worth."""
    result = out.with_name(f"{out.name}.json")
    if not result.exists():
        run = wcl.pretrain(recipe, resume=(out / "config.yaml").exists(), out=str(out), **changes)
        if recipe == "digits":
            accuracy = accuracies(wcl.load(run))[1]  # with three labels a class
        else:
            accuracy = wcl.evaluate(run, "linear", data, threads=changes["threads"]).top1
        last = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "epoch"]
        last = last[-(len(last) // 4) :]
        found = {"accuracy": 100 * accuracy}
        for name in ("pair_precision", "pair_recall"):
            if name in last[0]:
                found[name] = 100 * statistics.fmean(line[name] for line in last)
        with written_whole(result) as unfinished:
            unfinished.write_text(json.dumps(found) + "\n")
    values: dict[str, float] = json.loads(result.read_text())
    return values


def in_words(values: Sequence[float], sign: str = "") -> str:
    """Mean ± standard deviation."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.1f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=CHANGES)
    parser.add_argument("--data", default="digits", help="where the images are")
    parser.add_argument("--groups", choices=("found", "classes"), default="found")
    parser.add_argument("--kept", type=float, nargs="+", default=[1.0, 0.8, 0.6, 0.4, 0.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, help="as many as in docs/results.md if not given")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/purity-by-hand"))
    given = parser.parse_args()

    classes = open_splits(given.data)[0].labels
    if classes is None:
        parser.error(f"--data: {given.data} has no classes, which the groups are made of")
    changes = {"data": given.data, "threads": given.threads, "devices": 1}
    changes |= CHANGES[given.recipe]
    if given.epochs:
        changes["epochs"] = given.epochs
    measured = partial(figures, recipe=given.recipe, data=given.data)
    folder = given.out / given.recipe
    table = Table("kept", "pairs of one class", "accuracy", "gain over SimCLR")
    base = {
        seed: measured(
            folder / f"simclr-seed{seed}",
            changes=changes | {"method": "simclr", "seed": seed},
        )
        for seed in given.seeds
    }
    accuracy = in_words([found["accuracy"] for found in base.values()])
    table.add_row("SimCLR", "", accuracy, "")
    for kept in given.kept:
        METHODS["wcl"] = partial(ByHand, classes, given.groups, kept)
        rows = [
            (base[seed], measured(out, changes=changes | {"seed": seed}))
            for seed in given.seeds
            for out in [folder / f"{given.groups}-{kept:g}-seed{seed}"]
        ]
        table.add_row(
            f"{kept:g}",
            in_words([row["pair_precision"] for _, row in rows]),
            in_words([row["accuracy"] for _, row in rows]),
            in_words([row["accuracy"] - simclr["accuracy"] for simclr, row in rows], "+"),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
