"""How runs were trained: recipe, changed settings, versions, machine, and commands to repeat it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from wcl.config import PretrainConfig, flat
from wcl.config.recipes import recipe_names
from wcl.config.run_config import read_recipe
from wcl.report.runs import Run, shortened
from wcl.system.units import duration
from wcl.training.provenance import hardware, shell_command, versions

_NOT_COMPARED = ("data", "out")
_EXTENDED = "change of length"


class Difference(NamedTuple):
    """A setting that differs from the recipe, as one types its values."""

    name: str
    recipe: str
    run: str


class Recipe(NamedTuple):
    """A recipe, and how a run differs from it."""

    name: str
    differences: list[Difference]
    known: bool
    """Whether the run was trained with it; if not, it is the closest one."""


@dataclass
class RunProvenance:
    """How one run was trained."""

    facts: list[tuple[str, str]]
    recipe: Recipe | None
    """None for a pretrained model."""
    settings_file: str
    """Name of the settings file that was given; empty if none was."""
    environments: list[tuple[int, dict[str, str]]]
    """Versions and machine from a step on; after the first, only what changed."""


class Command(NamedTuple):
    """A command to type."""

    about: str
    parts: list[str]
    """The command, split where a line may break: before options."""


def run_provenance(run: Run) -> RunProvenance:
    """Return how a run was trained."""
    if run.encoder is not None:
        return RunProvenance(_weights_facts(run), None, "", [])
    settings_file = run.sessions[0].config if run.sessions else ""
    return RunProvenance(training_facts(run), recipe_of(run), settings_file, _environments(run))


def recipe_of(run: Run) -> Recipe:
    """Return the recipe of a run, or the closest one."""
    name = run.sessions[0].recipe if run.sessions else ""
    if name in recipe_names():
        return Recipe(name, _differences(name, run.config), True)
    return closest_recipe(run.config)


def closest_recipe(config: PretrainConfig) -> Recipe:
    """Return the recipe with the fewest differences, preferring one named like the data."""
    recipes = [Recipe(name, _differences(name, config), False) for name in recipe_names()]
    return min(recipes, key=lambda r: (len(r.differences), r.name != config.data, r.name))


def _differences(recipe_name: str, config: PretrainConfig) -> list[Difference]:
    recipe = _flat(asdict(config.defaults())) | _recipe(recipe_name)
    return [
        Difference(name, _typed_value(recipe[name]), shortened(_typed_value(value)))
        for name, value in _flat(asdict(config)).items()
        if name not in _NOT_COMPARED and recipe[name] != value
    ]


@cache
def _recipe(name: str) -> dict[str, Any]:
    return _flat(read_recipe(name))


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings by dotted names, with lists for tuples as in YAML."""
    return {n: list(v) if isinstance(v, tuple) else v for n, v in flat(values).items()}


def _typed_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_typed_value, value))}]"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def training_facts(run: Run) -> list[tuple[str, str]]:
    """Return how far a run has come, how long it took, and when it was last updated."""
    facts = [("epochs", f"{run.epochs_done:,} of {run.config.epochs:,}"), *_weights_facts(run)]
    facts += [(_EXTENDED, session.extension) for session in run.sessions if session.extension]
    if run.epochs:
        facts.append(("training time", duration(sum(line["seconds"] for line in run.epochs))))
    if run.lines:
        facts.append(("steps", f"{int(run.lines[-1]['step']):,}"))
        facts.append(("last update", _date(run.files.metrics.stat().st_mtime)))
    return facts


def _weights_facts(run: Run) -> list[tuple[str, str]]:
    """Return which weights a run started from, or a pretrained model has."""
    weights = run.sessions[0].weights if run.sessions else {}
    if run.encoder is not None:
        described = run.encoder.description
        weights = {"name": described.weights, "sha256": described.weights_sha256}
    if not weights:
        return []
    return [("weights", weights["name"]), ("SHA-256 of the weights", weights["sha256"])]


def _environments(run: Run) -> list[tuple[int, dict[str, str]]]:
    found: list[tuple[int, dict[str, str]]] = []
    before: dict[str, str] = {}
    for session in run.sessions:
        now = session.versions | session.machine
        if changed := {name: now[name] for name in now if now[name] != before.get(name)}:
            found.append((session.step, changed))
        before = now
    return found


def machine_facts() -> list[tuple[str, str]]:
    """Return the versions and the machine that a page is made with."""
    import torch

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return [
        *versions().items(),
        *hardware().items(),
        *(("GPU", name) for name in gpus),
        ("date", _date(datetime.now().timestamp())),
    ]


def commands(runs: Sequence[Run], data: str, report_options: Sequence[str] = ()) -> list[Command]:
    """Return the commands that train and evaluate the runs and write the report again.

    Args:
        runs: the runs of the page.
        data: the data of the page.
        report_options: options of `wcl report` other than the runs and the data.
    """
    lines = []
    for run in runs:
        if run.encoder is not None:
            continue
        folder, recipe = shortened(run.folder), recipe_of(run)
        out = ["--out", f"{folder}-again"]
        if run.sessions and run.sessions[0].command:
            lines.append((f"{run.name}: the original command", run.sessions[0].command))
        lines += [
            (f"{run.name}: then given other epochs", session.command)
            for session in run.sessions
            if session.extension and session.command
        ]
        config = run.files.config.name
        words = ["wcl", "pretrain", "--config", f"{folder}/{config}", *out]
        lines.append((f"{run.name}: train again with its {config}", shell_command(*words)))
        words = ["wcl", "pretrain", recipe.name]
        words += [word for d in recipe.differences for word in (f"--{d.name}", d.run)]
        words += ["--data", shortened(run.config.data), *out]
        lines.append((f"{run.name}: train again without it", shell_command(*words)))
    lines += [(f"{run.name}: evaluate", evaluation_command(run, data)) for run in runs]
    words = ["wcl", "report", *(run.argument for run in runs)]
    words += ["--data", shortened(data), *report_options]
    lines.append(("this report", shell_command(*words)))
    return [Command(about, re.split(" (?=--)", line)) for about, line in lines]


def evaluation_command(run: Run, data: str) -> str:
    """Return the command that evaluates a run by all protocols."""
    words = ["wcl", "eval", "all", run.argument, "--data", shortened(data)]
    if run.config.classes:
        words += ["--classes", str(run.config.classes)]
    return shell_command(*words)


def _date(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")
