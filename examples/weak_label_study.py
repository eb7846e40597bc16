"""What better weak labels gain: WCL, soft WCL and its parts, and weak labels that classes correct.

    python examples/weak_label_study.py DATA/cifar10:20000:10000 --epochs 8 --out runs/weak-labels

The numbers after the data take that many images for training and for testing. Every row is trained
with each seed by the recipe `cifar10-cpu`, rows with crops by `cifar10-cpu-crops`, and evaluated by
k-NN, a linear layer, and 1, 3 and 10 labels per class. By default, rows are those without crops.
Rows that name classes use the true ones, to measure what is there to gain. Figures are in %, mean ±
standard deviation over the seeds. Pairs (positives of the image's class), neighbors (of its class)
and agreement are those of the last quarter of the run, and time is relative to the first row.
Finished runs are not repeated.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

import wcl
from adaptation_study import cached, subset
from wcl.config import AugmentConfig
from wcl.data import open_splits
from wcl.distributed.sharding import BatchShard
from wcl.methods import Losses
from wcl.methods.softwcl import SoftWCL, SoftWCLSettings
from wcl.methods.wcl import WCL
from wcl.neighbors import FeatureBank
from wcl.paper.frozen import frozen_accuracies
from wcl.system.errors import InputError, RunError

MEASURES = {
    "k-NN": "knn",
    "linear": "linear",
    "1 label": "1",
    "3 labels": "3",
    "10 labels": "10",
    "pairs": "pair_precision",
    "neighbors": "neighbor_same_class",
    "agreement": "agreement",
}
VARIANT = "weak_label_study:Variant"
CROPS: dict[str, Any] = {"recipe": "cifar10-cpu-crops", "crops__features": "plain"}
PLAIN_CROPS: dict[str, Any] = {"recipe": "cifar10-cpu-crops", "crops__neighbors": False}
TWO_VIEWS: dict[str, dict[str, Any]] = {
    "SimCLR": {"method": "simclr"},
    "WCL": {"method": "wcl"},
    "soft WCL": {"method": "softwcl"},
    "a teacher of augmented views": {"method": VARIANT, "loss__plain": False},
    "a queue of one batch": {"method": VARIANT, "loss__queue_size": 256},
    "five equal shares": {"method": VARIANT, "loss__shares": "five"},
    "one of the five": {"method": VARIANT, "loss__shares": "five", "loss__together": True},
    "three times the weight": {"method": VARIANT, "loss__soft": 3.0},
    "weak labels alone": {"method": VARIANT, "loss__nce": 0.0},
    "ten nearest no negatives": {"method": VARIANT, "loss__negatives": "far"},
    "shares of one class": {"method": VARIANT, "loss__shares": "one class"},
    "shares of classes": {"method": VARIANT, "loss__shares": "classes"},
    "one of the class": {"method": VARIANT, "loss__shares": "classes", "loss__together": True},
    "negatives of other classes": {"method": VARIANT, "loss__negatives": "other classes"},
}
WITH_CROPS: dict[str, dict[str, Any]] = {
    "SimCLR, crops": {"method": "simclr", **PLAIN_CROPS},
    "WCL, crops": {"method": "wcl", **PLAIN_CROPS},
    "soft WCL, crops": {"method": "softwcl", **PLAIN_CROPS},
    "WCL, crops of neighbors, views": {"method": "wcl", **CROPS, "crops__features": "views"},
    "WCL, crops of neighbors": {"method": "wcl", **CROPS},
    "WCL, crops of neighbors of one class": {
        "method": "weak_label_study:TrueNeighbors",
        **CROPS,
    },
}
ROWS = TWO_VIEWS | WITH_CROPS
_FAR = 10  # images of the batch that are nearest and no negatives


@dataclass
class VariantSettings(SoftWCLSettings):
    """Settings of soft WCL, and what is changed in it."""

    plain: bool = True
    """Whether the teacher sees plain images, or augmented views as the network does."""
    shares: Literal["soft", "five", "one class", "classes"] = "soft"
    """`five` gives the five images with the largest shares a fifth each; `one class` takes the
    shares of images of other classes away, so that what remains is right but still near; `classes`
    gives equal shares to all images of the class, near or far."""
    together: bool = False
    """Ask a view to find one of the images with a share, whichever it is, and not each by its
    share: the loss is the logarithm of the sum of their predicted shares."""
    negatives: Literal["all", "far", "other classes"] = "all"
    """Images of the batch that L_NCE pushes away; `far` leaves out the ten that the teacher finds
    nearest to the image, and those that the image is among the ten nearest of."""
    nce: float = 1.0
    """Weight of L_NCE."""


class Variant(SoftWCL):
    """Soft WCL with parts changed, and weak labels that true classes correct; one process only."""

    Settings: ClassVar[type[Any]] = VariantSettings
    needs_labels = True

    @classmethod
    def support_augmentation(cls, settings: Any, augment: AugmentConfig) -> AugmentConfig:
        return super().support_augmentation(settings, augment) if settings.plain else augment

    def loss(self, out: dict[str, Tensor], targets: dict[str, Tensor], shard: BatchShard) -> Losses:
        losses, settings = super().loss(out, targets, shard), self.settings
        left_out = torch.zeros(len(shard), len(shard), dtype=torch.bool, device=out["g"].device)
        if settings.negatives == "far":
            t = F.normalize(targets["phi"][0], dim=1)
            cosines = (t @ t.T).fill_diagonal_(-2)
            left_out = left_out.scatter(1, cosines.topk(min(_FAR, len(t) - 1), dim=1).indices, True)
            left_out = left_out | left_out.T
        elif settings.negatives == "other classes":
            left_out = self.same_class(shard, shard.image_index)
        nce = nt_xent_without(out["g"][0], out["g"][1], left_out, settings.temperature)
        total = losses.total - losses.parts["nce"] + settings.nce * nce
        return replace(losses, total=total, parts={**losses.parts, "nce": nce})

    def shares(self, t: Tensor, itself: Tensor, shard: BatchShard) -> Tensor:
        shares, how = super().shares(t, itself, shard), self.settings.shares
        if how == "soft":
            return shares
        if how == "five":
            return torch.zeros_like(shares).scatter(1, shares.topk(5, dim=1).indices, 1 / 5)
        past = self.queue_images.rows
        same = self.same_class(shard, past.clamp(min=0)) & (past >= 0) & ~itself
        kept = shares * same if how == "one class" else same.to(t.dtype)
        return kept / kept.sum(dim=1, keepdim=True).clamp(min=torch.finfo(t.dtype).tiny)

    def weak_loss(self, shares: Tensor, predicted: Tensor) -> Tensor:
        if not self.settings.together:
            return super().weak_loss(shares, predicted)
        # Not −∞, of which the gradient is NaN where an image has no shares.
        return -predicted.masked_fill(shares == 0, -1e4).logsumexp(dim=2)

    def same_class(self, shard: BatchShard, others: Tensor) -> Tensor:
        """Return (n, k) whether the images of the batch and others are of one class."""
        assert self.info.labels is not None  # needs_labels
        classes = self.info.labels.to(others.device)
        return classes[shard.image_index][:, None] == classes[others]


class TrueNeighbors(WCL):
    """WCL with crops of the nearest images of the same class; one process only."""

    needs_labels = True

    def end_of_epoch(self, bank: FeatureBank | None) -> None:
        """Add to the features what separates classes more than anything else does."""
        assert bank is not None and self.info.labels is not None
        classes = F.one_hot(self.info.labels, bank.features.shape[1])
        bank.features.copy_(F.normalize(bank.features.float() + 2 * classes, dim=1))


def nt_xent_without(z1: Tensor, z2: Tensor, left_out: Tensor, temperature: float) -> Tensor:
    """Compute L_NCE without some negatives.

    Args:
        z1, z2: (n, D) embeddings of the two views.
        left_out: (n, n) images that an image does not push away.
        temperature: τ.
    """
    z = F.normalize(torch.cat([z1, z2]).float(), dim=1)
    n = len(z1)
    view = torch.arange(2 * n, device=z.device)
    positive = (view + n) % (2 * n)
    masked = left_out.repeat(2, 2)
    masked[view, positive] = False
    masked[view, view] = True
    shares = (z @ z.T / temperature).masked_fill(masked, -1e4).log_softmax(dim=1)
    return -shares[view, positive].mean()


def trained(out: Path, row: str, seed: int, data: str, args: Any) -> dict[str, float]:
    """Train and measure one run, unless that was done before."""

    def compute() -> dict[str, float]:
        changes: dict[str, Any] = {"data": data, "seed": seed, "epochs": args.epochs, **ROWS[row]}
        changes |= {"threads": args.threads, "precision": args.precision}
        if args.lr:
            changes["optim__lr"] = args.lr
        resume = (out / "config.yaml").exists()
        recipe = "" if resume else changes.pop("recipe", "cifar10-cpu")
        wcl.pretrain(recipe, resume, out=str(out), **({} if resume else changes))
        figures = frozen_accuracies(wcl.load(out), *open_splits(data))
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        epochs = [line for line in map(json.loads, lines) if line["kind"] == "epoch"]
        last = epochs[-max(1, len(epochs) // 4) :]
        for name in ("pair_precision", "neighbor_same_class", "agreement"):
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
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(TWO_VIEWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
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
