"""The command line of one command: its arguments, flags and settings.

jsonargparse is imported when a command is parsed, so that `wcl --help` answers at once.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from wcl.config import PretrainConfig
from wcl.config.bounds import check_bounds
from wcl.config.names import flat
from wcl.config.recipes import default_recipe, recipe_file
from wcl.config.run_config import read_recipe
from wcl.system.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from wcl.config.layering import SettingsOf
    from wcl.config.parser import CommandParser

T = TypeVar("T", bound="DataclassInstance")
_ALIASES = {"-k": "--k", "--from": "--start"}  # `from` cannot be the name of a field
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "run": {
        "metavar": "RUN",
        "help": "Folder of a run, a file of weights, or timm:NAME[:SIZE][@FILE] for a pretrained "
        "model of timm, with an image size and with weights from a file.",
    },
    "runs": {
        "metavar": "RUN",
        "nargs": "+",
        "help": "Folder of a run, or timm:NAME[:SIZE][@FILE].",
    },
    "source": {"metavar": "SRC", "help": "Images, as for `wcl pretrain --data`."},
    "recipe": {"metavar": "RECIPE", "nargs": "?", "help": "A named set of settings."},
    "--config": {"action": "append", "metavar": "FILE", "help": "YAML file of settings."},
    "--resume": {"action": "store_true", "help": "Continue the run in --out."},
    "--query": {
        "action": "append",
        "default": [],
        "metavar": "FILE",
        "help": "Image to compare with; separate several with commas, or repeat --query.",
    },
    "--json": {"action": "store_true", "help": "Print one JSON object."},
    "--list": {
        "action": "store_true",
        "help": "Only list the cells, the data that they need and their estimated duration.",
    },
}


class RunSettings(NamedTuple):
    """Settings of a run that are given on the command line."""

    recipe: str
    """The recipe to start from; empty for none."""
    files: list[str]
    """YAML files of settings."""
    changes: dict[str, Any]
    """Single settings by their dotted names."""
    resume: bool


def choose(
    words: list[str], usage: str, what: str, known: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return the chosen name and the remaining arguments.

    Args:
        words: the command line.
        usage: the usage line, with `what` in capitals.
        what: what is chosen, such as "protocol".
        known: the choices and what they are, for the help.
    """
    name = words[0] if words else ""
    if name in known:
        return name, words[1:]
    if name in ("-h", "--help"):
        width = max(map(len, known))
        print(f"usage: {usage}\n")
        for choice, about in known.items():
            print(f"  {choice:<{width}}  {about}")
        print(f"\n{usage.partition(what.upper())[0]}{what.upper()} --help shows its settings.")
        raise SystemExit(0)
    if not name or name.startswith("-"):
        raise InputError(f"missing: {what}, one of {', '.join(known)}; usage: {usage}")
    raise InputError(
        f"{name}: no such {what}{did_you_mean(name, known)}; there are {', '.join(known)}"
    )


def parse(
    words: list[str], usage: str, options: type[T], *arguments: str
) -> tuple[T, dict[str, Any]]:
    """Parse a command line.

    Args:
        words: the command line after the name of the command.
        usage: the usage line.
        options: dataclass of the settings.
        arguments: other arguments of the command.

    Returns:
        The settings, and the values of all arguments by name.

    Raises:
        InputError: an argument is unknown or missing, or has an impossible value.
    """
    from wcl.config.parser import CommandParser, construct, read_help

    if _asks_for_help(words):
        read_help()
    names = [argument.removeprefix("--") for argument in arguments]
    parser = CommandParser(usage, options, skip=names)
    for argument in arguments:
        parser.add_argument(argument, **_ARGUMENTS[argument])
    given = parser.parse_args([_without_alias(word) for word in words]).as_dict()
    config = construct(options, given)
    check_bounds(config)
    return config, given


def parse_run(
    words: list[str],
    usage: str,
    options: type[PretrainConfig],
    settings_of: "SettingsOf",
    *arguments: str,
) -> RunSettings:
    """Parse the command line of a command that takes the settings of a run.

    `--help` shows the values of the recipe as defaults. The settings of the method are listed only
    if a recipe or `--method` is named: its module takes seconds to import.
    """
    from wcl.config.layering import settings_parser
    from wcl.config.parser import read_help

    def parser(method_settings: type | None = None) -> "CommandParser":
        parser = settings_parser(options, method_settings, usage)
        parser.description = (
            f"{parser.description} RECIPE is a named set of settings, of which `wcl recipes` lists "
            "all; by default the one named like the data, or folder. Settings in groups have "
            "dotted names."
        )
        for argument in (*arguments, "recipe", "--config"):
            parser.add_argument(argument, **_ARGUMENTS[argument])
        return parser

    if _asks_for_help(words):
        read_help()
        recipe, method = _recipe_and_method(words, "source" in arguments)
        values = read_recipe(recipe) if recipe else {}
        method = method or values.get("method", options.method if recipe else "")
        shown = parser(settings_of(method) if method else None)
        shown.set_defaults({name: value for name, value in values.items() if name in shown.names})
        if recipe:
            shown.description = f"{shown.description} Defaults here are those of {recipe}."
        shown.print_help()
        raise SystemExit(0)
    given = flat(parser().parse_args(words, defaults=False).as_dict())
    if "source" in given:
        given["data"] = given.pop("source")
    recipe, files = given.pop("recipe", None), given.pop("config", None)
    resume = given.pop("resume", False)
    recipe = recipe or ("" if files or resume else default_recipe(given.get("data", "")))
    if recipe:
        recipe_file(recipe)  # raises if there is none: before its name is taken for anything else
    return RunSettings(recipe, files or [], given, resume)


def _asks_for_help(words: list[str]) -> bool:
    return bool({"-h", "--help"} & {*words})


def _recipe_and_method(words: list[str], has_source: bool) -> tuple[str, str]:
    """Return what a command line with `--help` names, which need not be complete.

    >>> _recipe_and_method(["--help", "digits", "--epochs", "3"], False)
    ('digits', '')
    >>> _recipe_and_method(["digits", "--method=simclr", "-h"], True)
    ('digits', 'simclr')
    """
    split = [part for word in words for part in word.split("=", 1)]
    pairs = [*pairwise(["", *split])]
    switches = ("-h", "--help", "--resume")
    named = [
        word
        for before, word in pairs
        if not word.startswith("-") and (before in switches or not before.startswith("-"))
    ]
    values = dict(pairs)
    data = named.pop(0) if has_source and named else values.get("--data", "")
    without = "" if not data or "--config" in values else default_recipe(data)
    return named[0] if named else without, values.get("--method", "")


def _without_alias(word: str) -> str:
    """Replace the alias of a setting by its name.

    >>> _without_alias("--from=pool")
    '--start=pool'
    """
    name, equals, value = word.partition("=")
    return f"{_ALIASES.get(name, name)}{equals}{value}"
