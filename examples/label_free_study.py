"""Measure how well label-free figures predict k-NN accuracy, over many runs on labeled images.

    python examples/label_free_study.py runs/digits runs/photos --out study.jsonl

Every run below the given folders is measured: the label-free figures of its encoder, of the same
network before training and of raw pixels, and the k-NN accuracy of the three. Measurements are
appended to the file, and those in it are not repeated; without folders, the tables are of the file.

The first table has Spearman's rank correlation of each figure with accuracy, by data set and over
all of them (ranks within a data set), with a 95% interval of a bootstrap over runs. The second has
how often `wcl eval unlabeled` is right on whether a run is better than no training. Runs of methods
that learn from labels are left out of both.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor

from wcl.config import PretrainConfig
from wcl.data import Source, in_memory, limited, open_split, open_splits
from wcl.evaluation.augmented import PIXELS, run_settings, view_features
from wcl.evaluation.features import features, pixel_batches
from wcl.evaluation.knn import default_k, few_label_accuracy, predict
from wcl.evaluation.label_free import IMAGES, label_free
from wcl.evaluation.references import untrained_encoder
from wcl.evaluation.verdict import FIGURE, has_collapsed, is_better
from wcl.methods import find_method
from wcl.models.encoder import Encoder, load
from wcl.ops.agreement import neighbor_agreement
from wcl.system.errors import InputError, RunError
from wcl.system.run_folder import RunFolder
from wcl.training.checkpoint import load_checkpoint

Row = dict[str, Any]
Labeled = tuple[Tensor, Tensor]
Floats = npt.NDArray[np.float64]
_BANK = 10_000  # labeled images of k-NN
_DRAWS = 200  # of the bootstrap
_RELATIVE = {f"{name} ÷ untrained": name for name in ("retrieval_mrr", FIGURE, "rankme")}
_ACCURACIES = {"knn": "k-NN accuracy", "ten_labels": "1-NN accuracy with ten labels per class"}
# Turns figures so that more is better; the others are that way as they are.
_BETTER: dict[str, Callable[[Floats], Floats]] = {
    "alignment": lambda x: -x,
    "uniformity": lambda x: -x,
    "largest_group": lambda x: -x,
    "alpha_req": lambda x: -abs(x - 1),
}


def measure(folder: Path, baselines: dict[str, Row]) -> Row:
    """Measure a run: figures and accuracy of its encoder, the untrained network and pixels.

    Args:
        folder: of the run.
        baselines: measurements of networks without training, which runs share.
    """
    encoder = load(folder)
    config = run_settings(encoder)
    train, test = open_splits(config.data)
    train = limited(train, _BANK, config.seed)
    sample = in_memory(limited(open_split(config.data, "all")[-1], IMAGES, 0))
    own = accuracies(*(features(encoder, split, num_workers=0) for split in (train, test)))
    networks = {"encoder": encoder}
    if (earlier := earlier_encoder(encoder, config)) is not None:
        networks["earlier"] = earlier
    key = repr((config.data, config.seed, encoder.description.model, config.augment))
    if key not in baselines:
        networks["untrained"] = untrained_encoder(encoder, config.seed)
    views = view_features(networks, sample, config, num_workers=0)
    if earlier is not None:
        own["epoch_agreement"] = float(neighbor_agreement(views["encoder"][0], views["earlier"][0]))
    if key not in baselines:
        other = networks["untrained"]
        untrained = (features(other, split, num_workers=0) for split in (train, test))
        pixels = (pixel_rows(encoder, split) for split in (train, test))
        baselines[key] = {
            "untrained": accuracies(*untrained) | label_free(views["untrained"]),
            PIXELS: accuracies(*pixels) | label_free(views[PIXELS]),
        }
    return {
        "run": str(folder),
        "data": Path(config.data).name,
        "method": config.method,
        "n_test": len(test),
        "encoder": own | label_free(views["encoder"]),
        **baselines[key],
    }


def earlier_encoder(encoder: Encoder, config: PretrainConfig) -> Encoder | None:
    """Return the encoder of the checkpoint before the last, an epoch earlier by default."""
    assert encoder.home is not None
    file = RunFolder(encoder.home).previous_checkpoint
    saved = load_checkpoint(file, config) if file.is_file() else None
    if saved is None:
        return None
    earlier = untrained_encoder(encoder)
    state = {k: v for k, v in saved["method"].items() if k.startswith("encoder.")}
    earlier.load_state_dict({k.removeprefix("encoder."): v for k, v in state.items()})
    return earlier


def accuracies(train: Labeled, test: Labeled) -> Row:
    """Compute k-NN accuracy with all labels, and 1-NN accuracy with ten labels per class."""
    (bank, labels), (queries, expected) = train, test
    classes, k = int(labels.max()) + 1, default_k(labels)
    found = predict(queries, bank, labels, classes, k, temperature=0.1)
    return {
        "knn": float((found == expected).float().mean()),
        "ten_labels": few_label_accuracy(bank, labels, queries, expected, per_class=10).score,
    }


def pixel_rows(encoder: Encoder, source: Source) -> Labeled:
    """Return the pixels at 16×16 as rows, and their labels."""
    assert source.labels is not None
    batches = list(pixel_batches(encoder, source, num_workers=0))
    rows = torch.cat([index for _, index in batches])
    pixels = [F.adaptive_avg_pool2d(pixels.float(), 16).flatten(1) for pixels, _ in batches]
    return torch.cat(pixels), source.labels[rows]


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = sorted({row["data"] for row in rows})
    return {name: [row for row in rows if row["data"] == name] for name in names}


def column(rows: Sequence[Row], name: str) -> Floats:
    """Return a figure of the encoders, turned so that more is better; NaN where it is missing."""
    if name in _RELATIVE:
        own = _RELATIVE[name]
        return np.array([row["encoder"][own] / row["untrained"][own] for row in rows])
    values = np.array([row["encoder"].get(name, np.nan) for row in rows], dtype=float)
    return _BETTER[name](values) if name in _BETTER else values


def pooled_correlation(rows: Sequence[Row], name: str, target: str) -> float:
    """Compute Spearman's correlation by ranks within each data set, scaled to (0, 1)."""
    ranks: list[list[Floats]] = [[], []]
    for own in by_data(rows).values():
        pair = column(own, name), column(own, target)
        known = ~np.isnan(pair[0])
        for side, values in zip(ranks, pair, strict=True):
            if known.any():
                side.append((rankdata(values[known]) - 0.5) / known.sum())
    first, second = (np.concatenate([*side, np.zeros(0)]) for side in ranks)
    if len(first) < 3 or not (first.std() and second.std()):
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def interval(rows: Sequence[Row], name: str, target: str) -> tuple[float, float]:
    """Compute a 95% interval of the correlation: runs are drawn again, within each data set."""
    if np.isnan(pooled_correlation(rows, name, target)):
        return np.nan, np.nan
    generator = np.random.default_rng(0)
    groups = by_data(rows).values()
    drawn = []
    for _ in range(_DRAWS):
        sample = [own[i] for own in groups for i in generator.integers(len(own), size=len(own))]
        drawn.append(pooled_correlation(sample, name, target))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def print_correlations(rows: Sequence[Row], target: str) -> None:
    """Print a table of correlations with an accuracy: a line per figure, the best first."""
    sets = by_data(rows) | {"all": list(rows)}
    names = sorted(
        {*rows[0]["encoder"], *_RELATIVE} - _ACCURACIES.keys(),
        key=lambda name: -abs(pooled_correlation(rows, name, target)),
    )
    print(f"\nSpearman's correlation with {_ACCURACIES[target]}, and a 95% interval\n")
    print("| figure | " + " | ".join(f"{d}, {len(own)} runs" for d, own in sets.items()) + " |")
    print("|---|" + "---|" * len(sets))
    for name in names:
        cells = []
        for own in sets.values():
            low, high = interval(own, name, target)
            cells.append(f"{pooled_correlation(own, name, target):.2f} ({low:.2f} to {high:.2f})")
        print(f"| {name} | {' | '.join(cells)} |")


def answer(own: Row, untrained: Row) -> str:
    """Return what the verdict says of an encoder: whether it is better than no training."""
    if has_collapsed(own["rankme"], untrained["rankme"]):
        return "no"
    return is_better(own[FIGURE], untrained[FIGURE])


def print_hits(rows: Sequence[Row], target: str) -> None:
    """Print how often the verdict was right that an encoder is better than no training."""
    print(f"\nIs it better than the untrained network? By {_ACCURACIES[target]}\n")
    print("| runs | answered | right | of yes | of no |")
    print("|---|---|---|---|---|")
    for data, own in (by_data(rows) | {"all": list(rows)}).items():
        hits: dict[str, list[bool]] = {"yes": [], "no": [], "unclear": []}
        for row in own:
            said = answer(row["encoder"], row["untrained"])
            improved = row["encoder"][target] > row["untrained"][target]
            hits[said].append(improved == (said == "yes"))
        right = {said: f"{sum(each)} of {len(each)}" for said, each in hits.items()}
        both = hits["yes"] + hits["no"]
        counts = f"{len(both)} of {len(own)} | {sum(both)} of {len(both)}"
        print(f"| {data} | {counts} | {right['yes']} | {right['no']} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="*", help="folders of runs to measure")
    parser.add_argument("--out", type=Path, default=Path("study.jsonl"), help="measurements")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure_all(given.folders, given.out)
    # Without labels nobody has a run of a method that needs them.
    rows = [row for row in rows if not find_method(row["method"]).needs_labels]
    if not rows:
        sys.exit("no run of a method without labels could be measured; give folders of runs")
    for target in _ACCURACIES:
        print_correlations(rows, target)
        print_hits(rows, target)


def measure_all(folders: Sequence[Path], out: Path) -> list[Row]:
    """Return the measurements in the file, and those of further runs, which are appended to it."""
    text = out.read_text(encoding="utf-8") if out.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text.splitlines()]
    done = {row["run"] for row in rows}
    baselines: dict[str, Row] = {}
    for file in (f for folder in folders for f in sorted(folder.rglob(RunFolder("").encoder.name))):
        run = file.parent
        if str(run) in done or not RunFolder(run).config.is_file():
            continue
        try:
            rows.append(measure(run, baselines))
        except (InputError, RunError) as error:
            print(f"{run} is left out: {error}", flush=True)
            continue
        with out.open("a", encoding="utf-8") as appended:
            appended.write(json.dumps(rows[-1]) + "\n")
        print(f"{run}: k-NN {rows[-1]['encoder']['knn']:.3f}", flush=True)
    return rows


if __name__ == "__main__":
    main()
