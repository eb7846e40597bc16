"""The model card: what an exported encoder is, how it was made and how to use it."""

import html
import json
import re
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from wcl.config.run_config import read_config
from wcl.evaluation.evaluate_all import NOTE, markdown_table
from wcl.models.backbones import known_to_timm
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError
from wcl.system.paths import one_line
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import read_metrics

# Settings that determine the encoder. The others describe the machine and its files, which a card
# keeps private.
_SETTINGS = (
    "method",
    "epochs",
    "batch_size",
    "image_size",
    "limit",
    "classes",
    "seed",
    "model",
    "augment",
    "crops",
    "mild_augment_epochs",
    "loss",
    "optim",
    "precision",
)
_NOT_METRICS = ("kind", "step", "epoch", "seconds", "images_per_second", "data_wait", "skipped")

_WITH_TIMM = """\
import timm

model = timm.create_model("hf-hub:OWNER/NAME", pretrained=True).eval()  # or local-dir:FOLDER
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
features = model(transform(image)[None])  # image: PIL
"""
_WITH_WCL = """\
import wcl

encoder = wcl.load("FOLDER")  # where this repository was downloaded to
features = encoder.embed(["query.jpg"])
"""


def model_card(encoder: Encoder) -> str:
    """Return the README.md of a folder for the hub."""
    described = encoder.description
    model, size = described.model, described.image_size
    for_timm = known_to_timm(model)
    tags = ["image-feature-extraction", "self-supervised-learning", "wcl"]
    front = {"pipeline_tag": "image-feature-extraction", "tags": tags}
    if for_timm:
        front = {"library_name": "timm", **front, "tags": [*tags, "timm"]}
    stem = "" if model.stem == "native" else f" with the stem `{model.stem}`"
    color = {1: "grayscale", 3: "color"}.get(described.channels, f"{described.channels}-channel")
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---",
        f"# {model.backbone}, pretrained on {_plain(described.data) or 'images'} without labels",
        f"A `{model.backbone}`{stem} that maps a {color} image of {size}×{size} pixels to "
        f"{encoder.feature_dim} features; similar images have similar features "
        "(compare by cosine). "
        f"Pretrained by {_plain(described.method)} for {described.epoch} epochs with wcl "
        f"{_plain(described.version)}. SHA-256 of the weights: `{encoder.described()['sha256']}`.",
        *([] if encoder.home is None else _data_subset(encoder.home)),
        "## Use",
        _code("python", _WITH_TIMM if for_timm else _WITH_WCL),
    ]
    if for_timm:
        parts += ["or, with resizing and normalization built in,", _code("python", _WITH_WCL)]
    else:
        parts.append("timm cannot build this network by name; wcl can.")
    if encoder.home is not None:
        parts += _results(encoder.home, encoder.described()["sha256"])
        parts += _metrics(encoder.home, described.epoch) + _settings(encoder.home)
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def public_name(data: str) -> str:
    """Return the name of the data for an exported file, without its path on this machine.

    >>> public_name("/home/anna/photos/"), public_name("cifar10"), public_name("hf:anna/birds")
    ('photos', 'cifar10', 'hf:anna/birds')
    """
    if re.fullmatch(r"hf:[\w.-]+(/[\w.-]+)?", data):
        return data
    return PureWindowsPath(data).name  # understands both kinds of separators


def _results(run: Path, sha256: str) -> list[str]:
    """Return the results of `wcl eval all`, if it evaluated these weights."""
    try:
        results = json.loads(RunFolder(run).evaluation.read_text(encoding="utf-8"))
        if results["sha256"] != sha256:
            return []
        table, data = markdown_table(results["rows"]), public_name(results["data"])
    except (OSError, ValueError, KeyError, TypeError):  # missing, or written by something else
        return []
    return [f"## Results on {_plain(data)}", table, NOTE]


def _metrics(run: Path, epoch: int) -> list[str]:
    """Return the metrics of the weights' epoch, if any; the run may have continued since."""
    lines = read_metrics(RunFolder(run).metrics)
    epochs = [line for line in lines if (line.get("kind"), line.get("epoch")) == ("epoch", epoch)]
    if not epochs:
        return []
    shown = {name: value for name, value in epochs[-1].items() if name not in _NOT_METRICS}
    rows = [f"| {name} | {v:.4g} |" for name, v in shown.items() if isinstance(v, float)]
    return [f"## Metrics of epoch {epoch}", "\n".join(["| metric | value |", "|---|---|", *rows])]


def _data_subset(run: Path) -> list[str]:
    """Describe which part of the data was used, if not all of it."""
    settings, skipped = _read_settings(run), RunFolder(run).skipped
    reasons = []
    if classes := settings.get("classes"):
        reasons.append(f"only the first {classes} classes, in the order of their names")
    if limit := settings.get("limit"):
        reasons.append(f"at most {limit} images, drawn at random")
    if skipped.is_file():
        unreadable = len(skipped.read_bytes().splitlines())
        reasons.append(f"without {unreadable} unreadable image{'' if unreadable == 1 else 's'}")
    return [f"Trained on part of the data: {'; '.join(reasons)}."] if reasons else []


def _settings(run: Path) -> list[str]:
    settings = _read_settings(run)
    shown = {name: settings[name] for name in _SETTINGS if name in settings}
    return ["## Settings", _code("yaml", yaml.safe_dump(shown, sort_keys=False))] if shown else []


def _read_settings(run: Path) -> dict[str, Any]:
    """Read the settings of a run; none if it has no valid config.yaml."""
    try:
        return read_config(RunFolder(run).config)
    except InputError:
        return {}


def _plain(text: str) -> str:
    r"""Escape text so that Markdown shows it literally, on one line.

    >>> _plain("<b>*cats*\n")
    '&lt;b&gt;\\*cats\\*\\\\n'
    """
    return html.escape(re.sub(r"([\\`*_\[\]#|~!])", r"\\\1", one_line(text)), quote=False)


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}```"
