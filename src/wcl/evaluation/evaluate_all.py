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
from wcl.data import absolute, open_splits
from wcl.evaluation import Result, evaluate
from wcl.evaluation.splits import check_spec
from wcl.models.encoder import Encoder, load
from wcl.system.errors import InputError, RunError
from wcl.system.files import atomic_write
from wcl.system.machine import best_device, check_workers, use_threads
from wcl.system.progress import say, without_repeats
from wcl.system.run_folder import RunFolder

_COLUMNS = ("protocol", "setting", "measure", "encoder", "untrained", "n_train", "n_test")
NOTE = "untrained: the same network with random weights; for finetune, trained from scratch."


def evaluate_all(run: str, config: AllConfig) -> dict[str, Any]:
    """Evaluate an encoder by all protocols that its data allow.

    Returns:
        `rows`, one for each protocol; `results`, all that each of them says; `left_out`, why a
        protocol is not among them; `sha256`, of the weights that were evaluated.
    """
    if not config.data:
        raise InputError("--data: say where the labeled images are")
    check_spec(config.labels)
    use_threads(config.threads)
    check_workers(config.num_workers)
    encoder = load(run, best_device(config.device))
    shared: dict[str, Any] = {
        "data": config.data,
        "test_data": config.test_data,
        "classes": config.classes,
        "device": config.device,
        "threads": config.threads,
        "num_workers": config.num_workers,
    }
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    with without_repeats():
        for protocol, options in _protocols(config).items():
            say(f"{protocol} …")
            try:
                result = evaluate(encoder, protocol, **shared, **options)
                untrained = _untrained(encoder, protocol, {**shared, **options})
            except (InputError, RunError) as error:
                left_out[protocol] = str(error)
                continue
            results[protocol] = result.as_dict()
            new = _rows(result, untrained)
            rows += new
            for row in new:  # at once: what comes next may take long, or be stopped
                say(f"  {row['setting']}: {row['encoder']:.3f}, untrained {row['untrained']:.3f}")
    if not rows:
        raise InputError(next(iter(left_out.values())))
    found: dict[str, Any] = {"protocol": "all", "run": str(run), "data": absolute(config.data)}
    found |= {"test_data": absolute(config.test_data) if config.test_data else ""}
    found |= {"classes": config.classes, "rows": rows}
    found |= {"results": results, "left_out": left_out, "sha256": encoder.description.sha256}
    if encoder.home is not None:
        say(_write(encoder.home, found))
    return found


def _protocols(config: AllConfig) -> dict[str, dict[str, Any]]:
    """The protocols and their options; which of them the labels allow."""
    train, _ = open_splits(config.data, config.test_data)
    if train.multi_labels is not None:
        return {"lowshot": {}}
    if train.labels is None:
        raise InputError(f"{config.data}: has no labels, so there is nothing to measure")
    return {
        "knn": {},
        "linear": {},
        "finetune": {"labels": config.labels},
        "lowshot": {},
    }


def _untrained(encoder: Encoder, protocol: str, options: dict[str, Any]) -> Result | None:
    """What the untrained network reaches; fine-tuning has it in its run from scratch."""
    if protocol == "finetune":
        return None
    say(f"{protocol} of the untrained network …")
    torch.manual_seed(0)
    description = dataclasses.replace(encoder.description, method="none", epoch=0)
    untrained = Encoder(description).to(encoder.device).eval()
    untrained.home = encoder.home  # its features, which protocols share, are kept there too
    return evaluate(untrained, protocol, **options)


def _rows(result: Result, untrained: Result | None) -> list[dict[str, Any]]:
    """The lines of one protocol: one, or of few-label evaluations one for each number of labels."""
    found = {"protocol": result.protocol, "measure": result.measure, "n_test": result.n_test}
    details = result.details
    if result.protocol == "lowshot":
        assert untrained is not None
        return [
            {
                **found,
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
        "finetune": f"{Path(details.get('labels', '')).name} of the labels",  # perhaps a list
    }
    score = details["scratch_top1"] if untrained is None else untrained.score
    own = {"encoder": result.score, "untrained": score, "n_train": result.n_train}
    return [{**found, "setting": settings[result.protocol], **own}]


def _write(folder: Path, found: dict[str, Any]) -> str:
    """Both files beside the run, for those of an earlier evaluation, and a line about them."""
    lines = [
        f"`{found['run']}` on `{found['data']}`",
        "",
        markdown_table(found["rows"]),
        "",
        NOTE,
        "",
        *(f"{name} is left out: {why}" for name, why in found["left_out"].items()),
    ]
    files = RunFolder(folder)
    texts = {files.evaluation: json.dumps(found, indent=1)}
    texts |= {files.evaluation_table: "\n".join(lines)}
    try:
        for path, text in texts.items():
            with atomic_write(path) as unfinished:
                unfinished.write_text(text.rstrip() + "\n")
    except OSError as error:  # the figures are printed all the same
        return f"the table is not kept in the run ({error})"
    return f"the table is in {files.evaluation_table} too"


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """The `rows` of `everything` as a table in Markdown."""
    lines = [[*_COLUMNS], ["---"] * len(_COLUMNS)]
    lines += [[_text(row[column]) for column in _COLUMNS] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show_all(found: dict[str, Any]) -> None:
    """Print the table, and why a protocol is missing."""
    table = Table(*_COLUMNS)
    for row in found["rows"]:
        table.add_row(*(_text(row[column]) for column in _COLUMNS))
    Console().print(table)
    print(NOTE)
    for name, why in found["left_out"].items():
        print(f"{name} is left out: {why}")


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
