"""How was it made? What differs from its recipe, versions, machine, and commands to repeat it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from wcl.config import PretrainConfig, flat
from wcl.config.layering import recipe_file, recipe_names
from wcl.report.runs import Run, short
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import is_number
from wcl.training.provenance import hardware, typed, versions

_OF_THE_PLACE = ("data", "out")


class Difference(NamedTuple):
    """A setting that is not the recipe's."""

    name: str
    recipe: str
    run: str


class Recipe(NamedTuple):
    """The recipe of a run, and what is different in the run."""

    name: str
    differences: list[Difference]
    known: bool
    """Whether the run says so; if it does not, it is the nearest one."""


def recipe_of(run: Run) -> Recipe | None:
    """The recipe that a run was made from, or the nearest; None if its settings are not known."""
    if run.config is None:
        return None
    for session in run.sessions:
        if session.recipe in recipe_names():
            different = _differences(session.recipe, run.config)
            return Recipe(session.recipe, different, True)
    return Recipe(*nearest_recipe(run.config), False)


def nearest_recipe(config: PretrainConfig) -> tuple[str, list[Difference]]:
    """The recipe that the fewest settings differ from."""
    found = {name: _differences(name, config) for name in recipe_names()}
    # Of several the one that is called like the data.
    name = min(found, key=lambda name: (len(found[name]), name != config.data, name))
    return name, found[name]


@cache
def _recipe(name: str) -> dict[str, Any]:
    return _flat(yaml.safe_load(recipe_file(name).read_text()))


def _differences(recipe_name: str, config: PretrainConfig) -> list[Difference]:
    recipe = _flat(asdict(config.defaults())) | _recipe(recipe_name)
    return [
        Difference(name, value_text(recipe[name]), value_text(value))
        for name, value in _flat(asdict(config)).items()
        if name not in _OF_THE_PLACE and recipe[name] != value
    ]


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """By dotted names, and pairs as lists, as YAML has them."""
    return {n: list(v) if isinstance(v, tuple) else v for n, v in flat(values).items()}


class Command(NamedTuple):
    """A command to type."""

    about: str
    parts: list[str]
    """The command, split where a line may end: before options."""


def commands(
    runs: Sequence[Run], data: str, out: Path, given: bool, options: Sequence[str] = ()
) -> list[Command]:
    """What to type for the same again: a comment and a command each.

    Args:
        runs: of the report.
        data: that the report is of; empty if there are none.
        out: where the report was written.
        given: whether that place is not the usual one.
        options: of the report besides.
    """
    lines = []
    for run in runs:
        folder, recipe = short(run.folder), recipe_of(run)
        first = next((session for session in run.sessions if session.step == 0), None)
        if first is not None and first.command:
            lines.append((f"{run.name}, as it was made", first.command))
        lines.append(
            (
                f"{run.name}, from its settings",
                typed(
                    "wcl",
                    "pretrain",
                    "--config",
                    f"{folder}/{RunFolder(run.folder).config.name}",
                    "--out",
                    f"{folder}-again",
                ),
            )
        )
        if run.config is not None and recipe is not None:
            different = [(f"--{d.name}", d.run) for d in recipe.differences]
            words = [recipe.name, *(word for both in different for word in both)]
            words += ["--data", short(run.config.data), "--out", f"{folder}-again"]
            lines.append((f"{run.name}, without them", typed("wcl", "pretrain", *words)))
    if data:
        lines += [(f"what {run.name} is worth", evaluation_command(run, data)) for run in runs]
    words = ["wcl", "report", *(short(run.folder) for run in runs)]
    words += [*(["--data", short(data)] if data else []), *options]
    lines.append(("the report", typed(*words, *(["--out", short(out)] if given else []))))
    return [Command(about, re.split(" (?=--)", line)) for about, line in lines]


def evaluation_command(run: Run, data: str) -> str:
    """What to type to learn what a run is worth."""
    classes = run.config.classes if run.config is not None else 0
    words = ["wcl", "eval", "all", short(run.folder), "--data", short(data)]
    return typed(*words, *(["--classes", str(classes)] if classes else []))


@dataclass
class RunProvenance:
    """How one run was trained."""

    facts: list[tuple[str, str]]
    recipe: Recipe | None
    """None if its settings are unknown."""
    settings_file: str
    """Name of the file of settings that was given; empty if none was."""
    environments: list[tuple[int, dict[str, str]]]
    """Versions and machine, with the step from which on they apply; later ones only as changes."""


def run_provenance(run: Run) -> RunProvenance:
    """Return how a run was trained."""
    settings_file = next((session.config for session in run.sessions if session.config), "")
    return RunProvenance(training_facts(run), recipe_of(run), settings_file, provenance(run))


def training_facts(run: Run) -> list[tuple[str, str]]:
    """When a run was trained, how long, and how far it has come."""
    facts = []
    epochs = [line for line in run.lines if line.get("kind") == "epoch"]
    if run.config is not None:
        done = int(epochs[-1]["epoch"]) if epochs else 0
        facts.append(("epochs", f"{done:,} of {run.config.epochs:,}"))
    if run.lines:
        facts.append(("steps", f"{int(run.lines[-1]['step']):,}"))
    seconds = sum(line["seconds"] for line in epochs if is_number(line.get("seconds")))
    if seconds:
        facts.append(("training time", duration(seconds)))
    ended = RunFolder(run.folder).metrics
    if ended.is_file():
        facts.append(("last line written", _date(ended.stat().st_mtime)))
    return facts


def provenance(run: Run) -> list[tuple[int, dict[str, str]]]:
    """Versions and machine of a run's first sitting, then what was different in later ones, and
    how many steps had been taken before."""
    found: list[tuple[int, dict[str, str]]] = []
    before: dict[str, str] = {}
    for session in run.sessions:
        now = session.versions | session.machine
        new = {name: value for name, value in now.items() if before.get(name) != value}
        if new:
            found.append((session.step, new))
        before = now
    return found


def machine_facts() -> list[tuple[str, str]]:
    """The machine and the versions that the report was made with."""
    import torch

    facts = [*versions().items(), *hardware().items()]
    facts += [
        ("GPU", torch.cuda.get_device_name(number)) for number in range(torch.cuda.device_count())
    ]
    facts.append(("report made", _date(datetime.now().timestamp())))
    return facts


def value_text(value: Any) -> str:
    """A setting as one would type it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(v) for v in value)}]"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(3700)
    ('1 min 15 s', '1 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _date(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")
