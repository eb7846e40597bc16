"""The model card: what an exported encoder is, how it was made and how to use it."""

import html
import json
import re
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from wcl.config.run_config import read_config
from wcl.data.levels import described_levels
from wcl.evaluation.evaluate_all import markdown_table, table_note
from wcl.models.backbones import is_timm_model
from wcl.models.encoder import Encoder
from wcl.system.paths import one_line
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

# Settings that determine the encoder. The others describe the machine and its files, which a card
# keeps private.
_SETTINGS = (
    *("method", "epochs", "batch_size", "image_size", "limit", "classes", "seed", "model"),
    *("augment", "crops", "mild_augment_epochs", "loss", "optim", "precision"),
)
_NOT_METRICS = ("kind", "step", "epoch", "seconds", "images_per_second", "data_wait", "skipped")


def model_card(encoder: Encoder) -> str:
    """Return the README.md of a folder for the hub."""
    about, model = encoder.described(), encoder.description.model
    channels = about["channels"]
    environment = Environment(
        loader=PackageLoader("wcl.exporters"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"plain": _plain, "public_name": public_name}
    environment.filters |= {"markdown_table": markdown_table, "table_note": table_note}
    return environment.get_template("card.md").render(
        about=about,
        model=model,
        for_timm=is_timm_model(model),
        color={1: "grayscale", 3: "color"}.get(channels, f"{channels}-channel"),
        levels=described_levels(encoder.description.levels),
        **_about_run(encoder.home, about),
    )


def _about_run(home: Path | None, about: dict[str, Any]) -> dict[str, Any]:
    """Return what a run's files tell about its encoder; nothing if it does not belong to a run."""
    if home is None:
        return {"left_out": [], "results": None, "metrics": {}, "settings": ""}
    run = RunFolder(home)
    settings = read_config(run.config) if run.config.is_file() else {}
    shown = {name: settings[name] for name in _SETTINGS if name in settings}
    if (model := shown.get("model", {})).get("weights"):
        shown["model"] = model | {"weights": public_name(model["weights"])}
    return {
        "left_out": _left_out(settings, run.skipped),
        "results": _results(run.evaluation, about["sha256"]),
        "metrics": _metrics(run.metrics, about["epoch"]),
        "settings": yaml.safe_dump(shown, sort_keys=False) if shown else "",
    }


def public_name(data: str) -> str:
    """Return the name of the data for an exported file, without its path on this machine.

    >>> public_name("/home/anna/photos/"), public_name("cifar10"), public_name("hf:anna/birds")
    ('photos', 'cifar10', 'hf:anna/birds')
    """
    if re.fullmatch(r"hf:[\w.-]+(/[\w.-]+)?", data):
        return data
    return PureWindowsPath(data).name  # understands both kinds of separators


def _left_out(settings: dict[str, Any], skipped: Path) -> list[str]:
    """Describe which part of the data was used, if not all of it."""
    reasons = []
    if classes := settings.get("classes"):
        reasons.append(f"only the first {classes} classes, in the order of their names")
    if limit := settings.get("limit"):
        reasons.append(f"at most {limit} images, drawn at random")
    if skipped.is_file():
        unreadable = len(skipped.read_bytes().splitlines())
        reasons.append(f"without {unreadable} unreadable image{'' if unreadable == 1 else 's'}")
    return reasons


def _results(file: Path, sha256: str) -> dict[str, Any] | None:
    """Return the results of `wcl eval all`, if it evaluated these weights."""
    try:
        results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return results if results["sha256"] == sha256 else None
    except (OSError, ValueError, LookupError, TypeError):  # none, or damaged
        return None


def _metrics(file: Path, epoch: int) -> dict[str, float]:
    """Return the metrics of the weights' epoch, if any; the run may have continued since."""
    values: dict[str, Any] = {}
    for line in read_metrics(file):
        if (line.get("kind"), line.get("epoch")) == ("epoch", epoch):
            values = line
    return {n: v for n, v in values.items() if n not in _NOT_METRICS and isinstance(v, float)}


def _plain(text: str) -> str:
    r"""Escape text so that Markdown shows it literally, on one line.

    >>> _plain("<b>*cats*\n")
    '&lt;b&gt;\\*cats\\*\\\\n'
    """
    return html.escape(re.sub(r"([\\`*_\[\]#|~!])", r"\\\1", one_line(text)), quote=False)
