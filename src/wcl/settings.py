"""From a recipe, a file, a command line or Python to checked settings.

Later layers win: defaults, the recipe (or, on resuming, the run's own settings), `--config`
files, then single settings.
"""

import re
from argparse import ArgumentError
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from wcl.config import PretrainConfig
from wcl.errors import InputError, nearest

set_parsing_settings(docstring_parse_attribute_docstrings=True)

T = TypeVar("T")
_RECIPES = Path(__file__).parent / "recipes"


def recipe_names() -> list[str]:
    return sorted(path.stem for path in _RECIPES.glob("*.yaml"))


def recipe_file(name: str) -> Path:
    """The YAML file of a recipe.

    Raises:
        InputError: there is no recipe of that name.
    """
    names = recipe_names()
    if name not in names:
        raise InputError(
            f"{name}: no such recipe{nearest(name, names)}; there are {', '.join(names)}"
        )
    return _RECIPES / f"{name}.yaml"


def settings(
    recipe: str = "", changes: dict[str, Any] | None = None, resume: bool = False
) -> PretrainConfig:
    """Settings for Python: a recipe and what to change in it.

    >>> settings("digits", {"epochs": 3, "optim__rate": 0.01}).optim.rate
    0.01
    """
    changes = {name.replace("__", "."): value for name, value in (changes or {}).items()}
    words = [f"--{name}={_as_text(value)}" for name, value in _flat(changes).items()]
    return parse_settings([recipe, *words] if recipe else words, resume)


def parse_settings(words: list[str], resume: bool = False) -> PretrainConfig:
    """Settings from the words of a command line: `[RECIPE] --name value …`.

    Without a recipe or a file, the recipe is the one that is called like the data, or `folder`.
    """
    layers: list[str] = []
    if resume and (run := _run_config(words)):
        layers += ["--config", str(run)]
    if words and not words[0].startswith("-"):
        layers += ["--config", str(recipe_file(words[0]))]
        words = words[1:]
    elif not layers and _value_of("--config", words) is None:
        data = _value_of("--data", words)
        layers += ["--config", str(recipe_file(data if data in recipe_names() else "folder"))]
    return parse(pretrain_parser(), [*layers, *words], PretrainConfig)


def pretrain_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="wcl pretrain",
        usage="wcl pretrain [RECIPE] --data SRC --out RUN [--resume] [--SETTING VALUE …]",
        description=(
            "Pretrain an encoder on images without labels. RECIPE is a set of settings that go "
            f"together: {', '.join(recipe_names())}; without one it is the recipe called like the "
            "data, or folder. Any setting can be changed by name."
        ),
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file of settings.")
    parser.add_class_arguments(PretrainConfig, as_group=False)
    return parser


def options_parser(options: type, prog: str, usage: str) -> ArgumentParser:
    """A parser for a command whose options are a dataclass."""
    parser = ArgumentParser(
        prog=prog,
        usage=usage,
        description=(options.__doc__ or "").strip(),
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_class_arguments(options, as_group=False)
    return parser


def parse(parser: ArgumentParser, words: list[str], into: type[T]) -> T:
    """Parse into a dataclass, with every complaint as one line.

    Raises:
        InputError: an unknown setting, or a value that does not fit.
    """
    try:
        found = parser.instantiate(parser.parse_args(words))
    except ArgumentError as error:
        raise InputError(_one_line(str(error), into)) from error
    names = {field.name for field in fields(into)}  # type: ignore[arg-type]
    return into(**{name: value for name, value in vars(found).items() if name in names})


def _one_line(message: str, into: type) -> str:
    known = setting_names(into)
    if match := re.search(r"unrecognized arguments: (?:--)?([\w.]+)", message):
        return f"--{match[1]}: no such setting{nearest(match[1], known)}; --help lists them"
    if match := re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message):
        name = f"{match[1]}.{match[2]}"
        return f"{name}: no such setting{nearest(name, known)}; --help lists them"
    if match := re.search(r"(?:Option|Key) '([\w.]+)' is not (?:accepted|expected)", message):
        return f"{match[1]}: no such setting{nearest(match[1], known)}; --help lists them"
    if match := re.search(
        r'Parser key "([\w.]+)":\s*Expected an? (.*?)\. Got value: (.*)', message, re.S
    ):
        wanted = re.sub(r"typing\.Literal|<class '(\w+)'>", r"\1", match[2])
        wanted = re.sub(r"^\[(.*)\]$", r"one of \1", wanted.strip())
        return f"--{match[1]}: {match[3].splitlines()[0]!s} is not {wanted}".replace("'", "")
    if match := re.search(r'Parser key "([\w.]+)": File does not exist: (.*)', message):
        return f"--{match[1]}: no such file: {match[2]}"
    return " ".join(message.split())


def setting_names(options: type, prefix: str = "") -> list[str]:
    """All settings of a dataclass by their dotted names."""
    names: list[str] = []
    for field in fields(options):
        inner = field.default_factory
        if isinstance(inner, type) and is_dataclass(inner):
            names += setting_names(inner, f"{prefix}{field.name}.")
        else:
            names.append(prefix + field.name)
    return names


def _run_config(words: list[str]) -> Path | None:
    """The settings that the run in `--out` was started with, if it was."""
    out = _value_of("--out", words)
    path = Path(out or "").expanduser() / "config.yaml"
    return path if out and path.is_file() else None


def _value_of(option: str, words: list[str]) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name == option:
            return value or following
    return None


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        )
    return flat


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        yaml.safe_dump(list(value) if isinstance(value, tuple) else value, default_flow_style=True)
        .replace("\n...", "")
        .strip()
    )
