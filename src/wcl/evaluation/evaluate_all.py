"""`wcl eval all`: every protocol that the data allow, and one table of the results.

The same network without training is measured beside the encoder and, for a run that started from
pretrained weights, the untouched encoder.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from wcl.config import AllConfig, EvalConfig
from wcl.data import absolute, open_splits
from wcl.evaluation import Result, check_config, evaluate
from wcl.evaluation.comparison import verdict
from wcl.evaluation.few_labels import check_spec
from wcl.evaluation.own_data import with_data
from wcl.evaluation.result import REFERENCES, explanation
from wcl.evaluation.run_files import write_if_possible
from wcl.models.opening import open_encoder
from wcl.system.errors import InputError, RunError
from wcl.system.machine import best_device
from wcl.system.progress import log, without_repeats
from wcl.system.run_folder import RunFolder

_COLUMNS = (
    *("protocol", "setting", "measure", "encoder", "interval", "untrained", "pretrained", "chance"),
    *("n_train", "n_test"),
)


def evaluate_all(run: str, config: AllConfig) -> dict[str, Any]:
    """Evaluate an encoder by all protocols that its data allow.

    Returns:
        `rows` for the table; `results`, the JSON of each protocol; `left_out`, why a protocol could
        not run; `sha256` of the evaluated weights; `pretrained_run`, how commands name the encoder
        that the run started from, if any; and what was evaluated.
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
            except (InputError, RunError) as error:
                left_out[protocol] = str(error)
                continue
            results[protocol] = result.as_dict()
            new = _rows(result)
            rows += new
            for row in new:  # now, since the next protocol may take long
                beside = [f", {name} {row[name]:.3f}" for name in REFERENCES if name in row]
                log(f"  {row['setting']}: {row['encoder']:.3f}{''.join(beside)}")
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
        "pretrained_run": next(
            (r["pretrained_run"] for r in results.values() if "pretrained_run" in r), ""
        ),
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
        raise InputError(
            f"{config.data}: has no labels; measure without them: wcl eval unlabeled RUN"
        )
    return {"knn": {}, "linear": {}, "finetune": {"labels": config.labels}, "lowshot": {}}


def _rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of one protocol: one, or for low-shot one for each number of labels."""
    details = result.details
    shared = {"protocol": result.protocol, "measure": result.measure, "n_test": result.n_test}
    shared["chance"] = result.beside["chance"]
    if result.protocol == "lowshot":
        return [
            {
                **shared,
                "setting": f"{row['k']} per class" if row["k"] != "all" else "all labels",
                "encoder": row["mean"],
                "n_train": row["images"],
                **_beside(row),
            }
            for row in result.rows
        ]
    settings = {
        "knn": f"k = {details.get('k')}",
        "linear": f"{details.get('epochs')} epochs",
        "finetune": f"{Path(details.get('labels', '')).name} of the labels",  # may be a file
    }
    own = {"encoder": result.score, "n_train": result.n_train, **_beside(result.beside)}
    if result.protocol == "finetune":
        own |= {"untrained": details["scratch_top1"], "untrained_margin": details["scratch_margin"]}
    return [{**shared, "setting": settings[result.protocol], **own}]


def _beside(values: dict[str, Any]) -> dict[str, Any]:
    """Return the interval of a score, and its references."""
    names = ["interval", *REFERENCES, *(f"{name}_margin" for name in REFERENCES)]
    return {name: values[name] for name in names if name in values}


def _write(folder: RunFolder, evaluation: dict[str, Any]) -> None:
    """Write both files into the run folder, over earlier ones."""
    rows = evaluation["rows"]
    title = f"`{evaluation['run']}` on `{evaluation['data']}`"
    paragraphs = [title, markdown_table(rows), table_note(rows), *_remarks(evaluation)]
    texts = {
        folder.evaluation: json.dumps(evaluation, indent=1),
        folder.evaluation_table: "\n\n".join(paragraphs),
    }
    failure = "the table is not written to the run folder"
    if all(write_if_possible(path, f"{t}\n".encode(), failure) for path, t in texts.items()):
        log(f"wrote the table to {folder.evaluation_table}")


def markdown_table(rows: list[dict[str, Any]]) -> str:
    """Return the `rows` of `evaluate_all` as a table in Markdown."""
    columns = _columns(rows)
    lines = [columns, ["---"] * len(columns), *(_cells(row, columns) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_note(rows: list[dict[str, Any]]) -> str:
    """Return what the columns of the table mean."""
    return explanation(_columns(rows))


def show_all(evaluation: dict[str, Any]) -> None:
    """Print the table, whether training helped, and why a protocol is missing."""
    columns = _columns(evaluation["rows"])
    table = Table(*columns)
    for row in evaluation["rows"]:
        table.add_row(*_cells(row, columns))
    Console().print(table)
    print("\n".join([table_note(evaluation["rows"]), *_remarks(evaluation)]))


def _remarks(evaluation: dict[str, Any]) -> list[str]:
    """Return whether training helped, and why a protocol is missing."""
    left_out = evaluation["left_out"].items()
    remarks = [f"{name} is left out: {reason}" for name, reason in left_out]
    untouched = evaluation["pretrained_run"]
    if helped := verdict(evaluation["rows"], "the encoder", untouched):
        question = "Did adapting help?" if untouched else "Did training help?"
        remarks.append(f"{question} {helped.answer}: {helped.sentence}")
    return remarks


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns for which there is a value; an older evaluation has fewer."""
    return [name for name in _COLUMNS if any(name in row for row in rows)]


def _cells(row: dict[str, Any], columns: list[str]) -> list[str]:
    return [_cell(row.get(column, "–")) for column in columns]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]:.3f}–{value[1]:.3f}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
