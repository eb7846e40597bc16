"""What better weak labels gain: WCL and soft WCL, and weak labels that true classes correct.

    python examples/weak_label_study.py DATA/cifar10:20000:10000 --epochs 8 --out runs/weak-labels

The numbers after the data take that many images for training and for testing. Every row is trained
with each seed by the recipe `cifar10-cpu`, and evaluated by k-NN, a linear layer, and 1, 3 and 10
labels per class. The last two rows use true classes, to measure what is there to gain. Figures are
in %, mean ± standard deviation over the seeds; precision and agreement are those of the last
quarter of the run, and time is relative to the first row. Finished runs are not repeated.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

import wcl
from adaptation_study import cached, subset
from wcl.data import open_splits
from wcl.distributed.sharding import BatchShard
from wcl.methods.softwcl import SoftWCL, SoftWCLSettings
from wcl.paper.frozen import frozen_accuracies
from wcl.system.errors import InputError, RunError

MEASURES = {
    "k-NN": "knn",
    "linear": "linear",
    "1 label": "1",
    "3 labels": "3",
    "10 labels": "10",
    "precision": "pair_precision",
    "agreement": "agreement",
}
CORRECTED = "weak_label_study:Corrected"
ROWS: dict[str, dict[str, Any]] = {
    "SimCLR": {"method": "simclr"},
    "WCL": {"method": "wcl"},
    "soft WCL": {"method": "softwcl"},
    "soft WCL, one class": {"method": CORRECTED, "loss__corrected": "one class"},
    "soft WCL, classes": {"method": CORRECTED, "loss__corrected": "classes"},
}


@dataclass
class CorrectedSettings(SoftWCLSettings):
    """Settings of soft WCL, and how true classes correct its weak labels."""

    corrected: Literal["no", "one class", "classes"] = "no"
    """`one class` takes the shares of images of other classes away, so that what remains is right
    but still near; `classes` gives equal shares to all images of the class, near or far."""


class Corrected(SoftWCL):
    """Soft WCL with weak labels that true classes correct."""

    Settings: ClassVar[type[Any]] = CorrectedSettings
    needs_labels = True

    def shares(self, t: Tensor, itself: Tensor, shard: BatchShard) -> Tensor:
        shares = super().shares(t, itself, shard)
        if self.settings.corrected == "no":
            return shares
        assert self.info.labels is not None  # needs_labels
        classes, past = self.info.labels.to(t.device), self.queue_images.rows
        own = classes[shard.local(shard.image_index)]
        same = (own[:, None] == classes[past.clamp(min=0)]) & (past >= 0) & ~itself
        kept = shares * same if self.settings.corrected == "one class" else same.to(t.dtype)
        return kept / kept.sum(dim=1, keepdim=True).clamp(min=torch.finfo(t.dtype).tiny)


def trained(out: Path, row: str, seed: int, data: str, args: Any) -> dict[str, float]:
    """Train and measure one run, unless that was done before."""

    def compute() -> dict[str, float]:
        changes: dict[str, Any] = {"data": data, "seed": seed, "epochs": args.epochs, **ROWS[row]}
        changes |= {"threads": args.threads, "precision": args.precision}
        if args.lr:
            changes["optim__lr"] = args.lr
        resume = (out / "config.yaml").exists()
        recipe = "" if resume else args.recipe
        wcl.pretrain(recipe, resume, out=str(out), **({} if resume else changes))
        figures = frozen_accuracies(wcl.load(out), *open_splits(data))
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        epochs = [line for line in map(json.loads, lines) if line["kind"] == "epoch"]
        last = epochs[-max(1, len(epochs) // 4) :]
        for name in ("pair_precision", "agreement"):
            if name in last[-1]:
                figures[name] = 100 * mean(line[name] for line in last)
        return figures | {"seconds": sum(line["seconds"] for line in epochs)}

    return cached(out.parent / f"{out.name}.json", compute)


def show(rows: dict[str, list[dict[str, float]]]) -> None:
    """Print the table."""
    print(f"\n| | {' | '.join(MEASURES)} | time |")
    print("|---" * (len(MEASURES) + 2) + "|")
    first = next(iter(rows.values()))
    for row, runs in rows.items():
        cells = []
        for key in MEASURES.values():
            values = [run[key] for run in runs if key in run]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}" if values else "–")
        seconds = (mean(run["seconds"] for run in each) for each in (runs, first))
        cells.append(f"{next(seconds) / next(seconds):.2f}")
        print(f"| {row} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", help="labeled images, as DATA or DATA:TRAIN:TEST")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--recipe", default="cifar10-cpu")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0, help="by default that of the recipe")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    data = subset(args.data, args.out / "data")
    rows: dict[str, list[dict[str, float]]] = {row: [] for row in args.rows}
    for seed in args.seeds:
        for row in args.rows:
            out = args.out / f"{row}, rate {args.lr:g}, {args.epochs} epochs, seed {seed}"
            rows[row].append(trained(out, row, seed, data, args))
    show(rows)


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(f"weak_label_study: {error}")
