"""Compare ways to adapt pretrained weights to images without labels.

    python examples/adaptation_study.py WEIGHTS cifar=DATA/cifar10:4000:2000 caltech=DATA/photos \
        digits --out runs/adaptation

WEIGHTS are those of EfficientNet-Lite0, which the recipe `adapt` uses. Data are labeled images, as
for `wcl eval`; numbers after a colon take that many images for training and for testing. Every row
of the table is trained with each seed, and evaluated by k-NN and by SVMs with 1, 4, 16 and all
labels per class. Figures are in %, mean ± standard deviation over the seeds, and the difference
from the untouched encoder. Finished runs are not repeated.
"""

import argparse
import io
import json
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import wcl
from wcl.data import limited, open_splits
from wcl.data.decode import shown, whole_pixels
from wcl.system.errors import InputError, RunError

MEASURES = ("k-NN", "1 label", "4 labels", "16 labels", "all labels")
CONTRAST: dict[str, Any] = {
    "batch_size": 64,
    "optim": {"name": "sgd", "lr": 0.001, "warmup_epochs": 0.2},
    "augment": {"scale": [0.2, 1], "jitter": 0.8, "hue": 0.1, "blur": 0.5},
}
BATCH_NORM = {"model__freeze_batch_norm": False}
LABELS_FROM_H = {"loss__labels_from": "h"}
PHI_ALONE = {"loss__nce": 0.0, "loss__swap": 1.0}
ROWS: dict[str, dict[str, Any]] = {
    "adapt": {},
    "adapt, without neighbors": {"loss__neighbor_weight": 0.0},
    "SimCLR": {"method": "simclr", **CONTRAST},
    "WCL": {"method": "wcl", **CONTRAST},
    "WCL, batch norm not frozen": {"method": "wcl", **CONTRAST, **BATCH_NORM},
    "WCL, labels from h": {"method": "wcl", **CONTRAST, **LABELS_FROM_H},
    "WCL, labels from h, φ alone": {"method": "wcl", **CONTRAST, **LABELS_FROM_H, **PHI_ALONE},
}


def subset(spec: str, folder: Path) -> str:
    """Return the data to open; for DATA:TRAIN:TEST, parquet files of that many images."""
    data, *counts = spec.split(":")
    if not counts:
        return data
    folder.mkdir(parents=True, exist_ok=True)
    splits = zip(("train", "test"), open_splits(data), map(int, counts), strict=True)
    for name, source, count in splits:
        if (folder / f"{name}.parquet").exists():
            continue
        chosen = limited(source, count, seed=0)
        assert chosen.labels is not None
        files = []
        for number in range(len(chosen)):
            buffer = io.BytesIO()
            pixels = whole_pixels(chosen.image(number))
            shown(pixels).convert("RGB").save(buffer, "PNG")
            files.append({"bytes": buffer.getvalue(), "path": f"{number}.png"})
        table = pa.table({"image": files, "label": chosen.labels.tolist()})
        pq.write_table(table, folder / f"{name}.parquet")
    return str(folder)


def measure(run: str | Path, data: str) -> dict[str, float]:
    """Evaluate an encoder by k-NN and by SVMs with few labels."""
    knn = wcl.evaluate(run, "knn", data)
    svm = wcl.evaluate(run, "lowshot", data, k="1,4,16").as_dict()
    scores = [knn.top1, *(row["mean"] for row in svm["rows"])]
    return dict(zip(MEASURES, scores, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("weights", type=Path, help="weights of tf_efficientnet_lite0")
    parser.add_argument("data", nargs="+", help="NAME=DATA or NAME=DATA:TRAIN:TEST")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--image_size", type=int, default=96)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = f"timm:tf_efficientnet_lite0:{args.image_size}@{args.weights}"
    for given in args.data:
        name, _, spec = given.partition("=")
        folder = args.out / name
        data = subset(spec or name, folder / "data")
        untouched = cached(folder / "untouched.json", lambda data=data: measure(model, data))
        rows = {}
        for row in args.rows:
            rows[row] = [
                trained(folder / f"{row}, seed {seed}", row, seed, data, args)
                for seed in range(args.seeds)
            ]
        show(name, untouched, rows)


def trained(out: Path, row: str, seed: int, data: str, args: Any) -> dict[str, float]:
    """Train and measure one run, unless that was done before."""

    def compute() -> dict[str, float]:
        settings = {"model__weights": str(args.weights), "image_size": args.image_size}
        resume = (out / "config.yaml").exists()
        changes = {"data": data, "seed": seed, "threads": args.threads, **settings, **ROWS[row]}
        wcl.pretrain("" if resume else "adapt", resume, out=str(out), **({} if resume else changes))
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        epochs = [line for line in map(json.loads, lines) if line.get("kind") == "epoch"]
        figures = measure(out, data)
        figures["seconds"] = sum(line["seconds"] for line in epochs)
        for number, line in enumerate(epochs, 1):
            if "pair_precision" in line:
                figures[f"pair precision, epoch {number}"] = line["pair_precision"]
        return figures

    return cached(out.parent / f"{out.name}.json", compute)


def cached(file: Path, compute: Any) -> dict[str, float]:
    """Return the figures in a file, or compute and write them."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(compute()), encoding="utf-8")
    found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return found


def show(name: str, untouched: dict[str, float], rows: dict[str, list[dict[str, float]]]) -> None:
    """Print the table of a data set."""
    print(f"\n| {name} | {' | '.join(MEASURES)} | least difference | pair precision | seconds |")
    print("|---" * (len(MEASURES) + 4) + "|")
    print("| untouched | " + " | ".join(f"{100 * untouched[m]:.1f}" for m in MEASURES) + " | | | |")
    for row, runs in rows.items():
        cells = []
        for key in MEASURES:
            values = [100 * run[key] for run in runs]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            difference = mean(values) - 100 * untouched[key]
            cells.append(f"{mean(values):.1f}{spread} ({difference:+.1f})")
        least = min(100 * (run[key] - untouched[key]) for run in runs for key in MEASURES)
        pairs = [f"{mean(run[k] for run in runs):.0%}" for k in runs[0] if k.startswith("pair")]
        seconds = mean(run["seconds"] for run in runs)
        cells += [f"{least:+.1f}", " → ".join(pairs), f"{seconds:.0f}"]
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(f"adaptation_study: {error}")
