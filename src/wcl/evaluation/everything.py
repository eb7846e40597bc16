"""`wcl eval all`: every protocol that the data allow, and one table of what came out.

Beside the encoder stands the same network untrained: what the architecture and the pixels give
for nothing.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from wcl.config import AllConfig
from wcl.data import open_splits
from wcl.encoder import Encoder, load
from wcl.errors import InputError
from wcl.evaluation import Result, evaluate
from wcl.machine import best_device
from wcl.progress import console

_COLUMNS = ("protocol", "measure", "encoder", "untrained", "n_train", "n_test", "seconds")


def everything(run: str, config: AllConfig) -> dict[str, Any]:
    """Evaluate an encoder by all protocols that its data allow.

    Returns:
        `rows`, one for each protocol; `results`, all that each of them says; `left_out`, why a
        protocol is not among them.
    """
    if not config.data:
        raise InputError("--data: say where the labelled images are")
    encoder = load(run, best_device(config.device))
    shared: dict[str, Any] = {
        "data": config.data,
        "test_data": config.test_data,
        "classes": config.classes,
        "device": config.device,
        "workers": config.workers,
    }
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for protocol, options in _protocols(config).items():
        console().print(f"{protocol} …", markup=False)
        try:
            result = evaluate(encoder, protocol, **shared, **options)
            untrained = _untrained_score(encoder, protocol, result, {**shared, **options})
        except InputError as error:
            left_out[protocol] = str(error)
            continue
        results[protocol] = result.as_dict()
        rows.append(
            {
                "protocol": protocol,
                "measure": result.measure,
                "encoder": result.score,
                "untrained": untrained,
                "n_train": result.n_train,
                "n_test": result.n_test,
                "seconds": result.seconds,
            }
        )
    if not rows:
        raise InputError(next(iter(left_out.values())))
    found = {"protocol": "all", "rows": rows, "results": results, "left_out": left_out}
    if encoder.home is not None:
        _write(encoder.home, found)
    return found


def _protocols(config: AllConfig) -> dict[str, dict[str, Any]]:
    """The protocols and their options; which of them the labels allow."""
    train, _ = open_splits(config.data, config.test_data)
    if train.multi_labels is not None:
        return {"lowshot": {}}
    return {
        "knn": {},
        "linear": {},
        "finetune": {"labels": config.labels},
        "lowshot": {},
    }


def _untrained_score(
    encoder: Encoder, protocol: str, result: Result, options: dict[str, Any]
) -> float:
    """What the untrained network reaches; fine-tuning has it in its run from scratch."""
    if protocol == "finetune":
        return float(result.details["scratch_top1"])
    torch.manual_seed(0)
    description = dataclasses.replace(encoder.description, method="none", epoch=0)
    untrained = Encoder(description).to(encoder.device).eval()
    return evaluate(untrained, protocol, **options).score


def _write(folder: Path, found: dict[str, Any]) -> None:
    """Both files beside the run; those of an earlier evaluation are replaced."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    lines += [f"| {' | '.join(_text(row[c]) for c in _COLUMNS)} |" for row in found["rows"]]
    lines += ["", *(f"{name} is left out: {why}" for name, why in found["left_out"].items())]
    texts = {"evaluation.json": json.dumps(found, indent=1), "evaluation.md": "\n".join(lines)}
    for name, text in texts.items():
        unfinished = folder / f"{name}.tmp"
        unfinished.write_text(text.rstrip() + "\n")
        unfinished.replace(folder / name)


def show_everything(found: dict[str, Any]) -> None:
    """Print the table, and why a protocol is missing."""
    table = Table(*_COLUMNS)
    for row in found["rows"]:
        table.add_row(*(_text(row[column]) for column in _COLUMNS))
    Console().print(table)
    for name, why in found["left_out"].items():
        print(f"{name} is left out: {why}")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
