"""`wcl eval all`: every protocol that the data allow, and one table of the results.

The same network without training is measured beside the encoder: it shows what the architecture and
the pixels give by themselves.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from wcl.config import AllConfig, EvalConfig
from wcl.data import absolute, open_splits
from wcl.evaluation import Result, check_config, evaluate
from wcl.evaluation.few_labels import check_spec
from wcl.evaluation.own_data import with_data
from wcl.evaluation.run_files import write_if_possible
from wcl.models.encoder import Encoder
from wcl.models.opening import open_encoder
from wcl.system.errors import InputError, RunError
from wcl.system.machine import best_device
from wcl.system.progress import log, without_repeats
from wcl.system.run_folder import RunFolder

_COLUMNS = ("protocol", "setting", "measure", "encoder", "untrained", "n_train", "n_test")
NOTE = "untrained: the same network with random weights; for finetune, trained from scratch."


def evaluate_all(run: str, config: AllConfig) -> dict[str, Any]:
    """Evaluate an encoder by all protocols that its data allow.

    Returns:
        `rows` for the table; `results`, the JSON of each protocol; `left_out`, why a protocol could
        not run; `sha256` of the evaluated weights; and what was evaluated.
    """
    check_config(config)
    check_spec(config.labels)
    encoder = open_encoder(run, best_device(config.device))
    is_own, config = not config.data, with_data(config, encoder)
    protocols = _protocols(config)
    if is_own:
        log(f"on {config.data}, which the run was trained on")
    shared = {field.name: getattr(config, field.name) for field in dataclasses.fields(EvalConfig)}
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    with without_repeats():
        for protocol, options in protocols.items():
            log(f"{protocol} …")
            try:
                result = evaluate(encoder, protocol, **shared, **options)
                untrained = None
                if protocol != "finetune":  # which includes a run from scratch
                    log(f"{protocol} of the untrained network …")
                    untrained = evaluate(untrained_encoder(encoder), protocol, **shared, **options)
            except (InputError, RunError) as error:
                left_out[protocol] = str(error)
                continue
            results[protocol] = result.as_dict()
            new = _rows(result, untrained)
            rows += new
            for row in new:  # now, since the next protocol may take long
                log(f"  {row['setting']}: {row['encoder']:.3f}, untrained {row['untrained']:.3f}")
    if not rows:
        raise InputError(next(iter(left_out.values())))
    evaluation: dict[str, Any] = {
        "protocol": "all",
        "run": str(run),
        "data": absolute(config.data),
        "test_data": absolute(config.test_data) if config.test_data else "",
        "classes": config.classes,
        "rows": rows,
        "results": results,
        "left_out": left_out,
        "sha256": encoder.description.sha256,
    }
    if encoder.home is not None:
        _write(RunFolder(encoder.home), evaluation)
    return evaluation


def _protocols(config: AllConfig) -> dict[str, dict[str, Any]]:
    """Return the protocols that the labels allow, with their options."""
    train, _ = open_splits(config.data, config.test_data)
    if train.multi_labels is not None:
        return {"lowshot": {}}
    if train.labels is None:
        raise InputError(f"{config.data}: has no labels, so nothing can be measured")
    return {"knn": {}, "linear": {}, "finetune": {"labels": config.labels}, "lowshot": {}}


def untrained_encoder(encoder: Encoder, seed: int = 0) -> Encoder:
    """Return the same network with random weights, which depend on the seed alone."""
    torch.manual_seed(seed)
    description = dataclasses.replace(
        encoder.description, method="none", epoch=0, weights="", weights_sha256=""
    )
    untrained = Encoder(description).to(encoder.device).eval()
    untrained.home = encoder.home  # to cache its features
    return untrained


def _rows(result: Result, untrained: Result | None) -> list[dict[str, Any]]:
    """Return the rows of one protocol: one, or for low-shot one for each number of labels."""
    shared = {"protocol": result.protocol, "measure": result.measure, "n_test": result.n_test}
    details = result.details
    if result.protocol == "lowshot":
        assert untrained is not None
        return [
            {
                **shared,
                "setting": f"{ours['k']} per class" if ours["k"] != "all" else "all labels",
                "encoder": ours["mean"],
                "untrained": theirs["mean"],
                "n_train": ours["images"],
            }
            for ours, theirs in zip(result.rows, untrained.rows, strict=True)
        ]
    settings = {
        "knn": f"k = {details.get('k')}",
        "linear": f"{details.get('epochs')} epochs",
        "finetune": f"{Path(details.get('labels', '')).name} of the labels",  # may be a file
    }
    score = details["scratch_top1"] if untrained is None else untrained.score
    own = {"encoder": result.score, "untrained": score, "n_train": result.n_train}
    return [{**shared, "setting": settings[result.protocol], **own}]


def _write(folder: RunFolder, evaluation: dict[str, Any]) -> None:
    """Write both files into the run folder, over earlier ones."""
    title = f"`{evaluation['run']}` on `{evaluation['data']}`"
    paragraphs = [title, markdown_table(evaluation["rows"]), NOTE, *_left_out(evaluation)]
    texts = {
        folder.evaluation: json.dumps(evaluation, indent=1),
        folder.evaluation_table: "\n\n".join(paragraphs),
    }
    failure = "the table is not written to the run folder"
    if all(write_if_possible(path, f"{t}\n".encode(), failure) for path, t in texts.items()):
        log(f"wrote the table to {folder.evaluation_table}")


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Return the `rows` of `evaluate_all` as a table in Markdown."""
    lines = [[*_COLUMNS], ["---"] * len(_COLUMNS), *map(_cells, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show_all(evaluation: dict[str, Any]) -> None:
    """Print the table, and why a protocol is missing."""
    table = Table(*_COLUMNS)
    for row in evaluation["rows"]:
        table.add_row(*_cells(row))
    Console().print(table)
    print("\n".join([NOTE, *_left_out(evaluation)]))


def _left_out(evaluation: dict[str, Any]) -> list[str]:
    return [f"{name} is left out: {reason}" for name, reason in evaluation["left_out"].items()]


def _cells(row: dict[str, Any]) -> list[str]:
    values = [row[column] for column in _COLUMNS]
    return [f"{value:.3f}" if isinstance(value, float) else str(value) for value in values]
