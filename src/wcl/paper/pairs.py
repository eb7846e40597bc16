"""The quality of the positives that a run learns from."""

import math
import statistics
from pathlib import Path

from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

_METRICS = ("purity", "pair_precision", "pair_recall", "conflicting")
_LAST = 1 / 4  # of a run's epochs, over which the metrics are averaged


def pair_quality(run: Path) -> dict[str, float]:
    """Return the metrics of a run's positives in its last quarter, as far as it has them.

    purity: share of the images that are of their component's most common class;
    pair_precision: share of the positive pairs that are of one class;
    pair_recall: share of the pairs of one class that are positive;
    conflicting: share of the pairs where i takes j for a positive but j does not take i.
    """
    epochs = [line for line in read_metrics(RunFolder(run).metrics) if line["kind"] == "epoch"]
    last = epochs[-math.ceil(len(epochs) * _LAST) :]
    found = {name: [line[name] for line in last if name in line] for name in _METRICS}
    return {name: statistics.fmean(values) for name, values in found.items() if values}
