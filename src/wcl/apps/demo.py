"""`wcl demo`: SimCLR and WCL on handwritten digits, compared with few labels."""

import sys

from rich.console import Console
from rich.table import Table
from torch import Tensor

from wcl.apps import pretrain
from wcl.config import DemoConfig
from wcl.config.layering import settings
from wcl.data import ArraySource, open_splits
from wcl.evaluation.knn import few_label_accuracy
from wcl.evaluation.references import untrained_encoder
from wcl.methods import method_settings
from wcl.models.encoder import Encoder, load
from wcl.system.paths import expanded
from wcl.system.run_folder import RunFolder

_LABELS_PER_CLASS = (1, 3, 10, 0)
_DRAWS = 5


def demo(config: DemoConfig) -> dict[str, list[float]]:
    """Pretrain both methods, print a table and return its rows: accuracies by name."""
    runs = {method: expanded(config.out) / method for method in ("simclr", "wcl")}
    for number, (method, out) in enumerate(runs.items(), start=1):
        changes = {"method": method, "out": str(out), "seed": config.seed}
        changes |= {"epochs": config.epochs, "threads": config.threads}
        print(f"run {number} of 2: {method} on the digits", file=sys.stderr)
        run_config = settings("digits", changes, method_settings)
        if not pretrain.run(run_config, RunFolder(out).config.exists(), "digits", quiet=True):
            print("start the demo again to continue", file=sys.stderr)
            return {}
    rows = {
        "raw pixels": accuracies(None),
        "untrained encoder": accuracies(untrained_encoder(load(runs["wcl"]), config.seed)),
    }
    names = {"simclr": "SimCLR", "wcl": "WCL"}
    rows |= {names[method]: accuracies(load(run)) for method, run in runs.items()}
    _print_table(rows)
    print(
        f"the runs are in {config.out}; to compare them: wcl report {runs['wcl']} {runs['simclr']}"
    )
    return rows


def accuracies(encoder: Encoder | None) -> list[float]:
    """Compute test accuracies with 1, 3, 10 and all labels per class, by the nearest neighbor.

    Without an encoder, raw pixels are the features.
    """
    labeled: list[Tensor] = []
    for source in open_splits("digits"):
        assert isinstance(source, ArraySource) and source.labels is not None
        pixels = source.pixels
        features = pixels.flatten(1).float() if encoder is None else encoder.embed(pixels)
        labeled += [features, source.labels]
    train, train_labels, test, test_labels = labeled
    return [
        few_label_accuracy(train, train_labels, test, test_labels, count, _DRAWS).score
        for count in _LABELS_PER_CLASS
    ]


def _print_table(rows: dict[str, list[float]]) -> None:
    table = Table(
        title=f"accuracy by labels per class (nearest labeled image, mean of {_DRAWS} draws)"
    )
    table.add_column("")
    for count in _LABELS_PER_CLASS:
        table.add_column(f"{count or 'all'}", justify="right")
    for name, values in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in values))
    Console().print(table)
