"""From a recipe, a file, a command line or Python to checked settings.

Later layers win: defaults, the recipe (or, on resuming, the run's own settings), `--config`
files, then single settings.
"""

import re
from argparse import ArgumentError
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from wcl.config import PretrainConfig, ViewsConfig, flat
from wcl.system.errors import YAML_VALUE_ERRORS, InputError, did_you_mean
from wcl.system.paths import expanded, one_line
from wcl.system.run_folder import RunFolder

set_parsing_settings(docstring_parse_attribute_docstrings=True)

T = TypeVar("T", bound=PretrainConfig)
Options = TypeVar("Options")
SettingsOf = Callable[[str], type]
"""From the name of a method to the dataclass of its settings. Methods are further down the order of
packages, so callers pass in how to find them."""
_RECIPES = Path(__file__).parent.parent / "recipes"
# Of a file of settings: a hundred times what one has.
_MOST_LETTERS, _MOST_BRACKETS = 500_000, 1_000
_COMMANDS: dict[type, tuple[str, str]] = {
    PretrainConfig: ("pretrain", "[RECIPE] --data SRC --out RUN [--resume]"),
    ViewsConfig: ("views", "SRC [RECIPE] [--out FILE]"),
}


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
            f"{name}: no such recipe{did_you_mean(name, names)}; there are {', '.join(names)}"
        )
    return _RECIPES / f"{name}.yaml"


def settings(
    recipe: str, changes: dict[str, Any], settings_of: SettingsOf, resume: bool = False
) -> PretrainConfig:
    """Return the settings of a recipe with some of them changed.

    >>> from wcl.methods import method_settings
    >>> settings("digits", {"epochs": 3, "optim__lr": 0.01}, method_settings).optim.lr
    0.01
    """
    return parse_settings(as_words(recipe, changes), settings_of, resume)


def as_words(recipe: str, changes: dict[str, Any]) -> list[str]:
    """What one would type for them.

    >>> as_words("digits", {"epochs": 3, "optim__lr": 0.01})
    ['digits', '--epochs=3', '--optim.lr=0.01']
    """
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    words = [f"--{name}={_as_text(value)}" for name, value in flat(changes).items()]
    return [recipe, *words] if recipe else words


def parse_settings(
    words: list[str], settings_of: SettingsOf, resume: bool = False
) -> PretrainConfig:
    """Return the settings of a run from a command line: `[RECIPE] --name value …`."""
    run = [f"--config={_run_config(words)}"] if resume else []
    return _parse_layers(run, words, PretrainConfig, settings_of)


def parse_views(words: list[str], settings_of: SettingsOf) -> ViewsConfig:
    """Return the settings of a contact sheet: those of a run, and of the sheet."""
    return _parse_layers([], words, ViewsConfig, settings_of)


def recipe_of(words: list[str], resume: bool = False) -> str:
    """The recipe that words of a command line begin with.

    Without one, and without a file of settings, it is the one called like the data, or `folder`.
    """
    if words and not words[0].startswith("-"):
        return words[0]
    if resume or value_of("--config", words) is not None:
        return ""
    data = value_of("--data", words)
    return data if data in recipe_names() else "folder"


def _parse_layers(layers: list[str], words: list[str], into: type[T], settings_of: SettingsOf) -> T:
    recipe = recipe_of(words, resume=bool(layers))
    if words and words[0] == recipe:
        if recipe not in recipe_names() and expanded(recipe).exists():
            raise InputError(f"{recipe}: no such recipe; as images, write --data {recipe}")
        words = words[1:]
    if recipe:
        layers = [*layers, f"--config={recipe_file(recipe)}"]
    words = [*layers, *words]
    _check_files(words)
    # All other settings are checked before the method is imported, which takes seconds.
    method = parse(settings_parser(into), words, into).method
    return parse(settings_parser(into, settings_of(method)), words, into, method)


def _check_files(words: list[str]) -> None:
    """Raise InputError for a file of settings that the parser should not see.

    A few lines of parts that repeat each other by name would fill the memory as soon as they are
    copied, and thousands of brackets take minutes. Files do not include others.
    """
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name != "--config":
            continue
        path = value if equals else following
        try:
            text = expanded(path).read_text()
            if len(text) > _MOST_LETTERS or text.count("[") + text.count("{") > _MOST_BRACKETS:
                raise InputError(f"{path}: too long for a file of settings")
            events = yaml.parse(text, yaml.SafeLoader)
            if any(isinstance(event, yaml.AliasEvent) for event in events):
                raise InputError(f"{path}: has a YAML alias (*name); write its value out instead")
            content = yaml.safe_load(text)
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue  # which the parser tells in its own words
        except InputError:
            raise
        except YAML_VALUE_ERRORS as error:
            raise InputError(f"{path}: cannot be read as YAML ({one_line(str(error))})") from error
        if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
            raise InputError(f"{path}: holds no settings; they are lines such as `epochs: 100`")
        if "config" in content:
            raise InputError(f"{path}: has a setting config; give several files by --config each")


def settings_parser(
    into: type[PretrainConfig], method_settings: type | None = None
) -> ArgumentParser:
    """Return the parser of `wcl pretrain`, or of another command that takes its settings and more.

    Args:
        into: dataclass of the command.
        method_settings: dataclass of the group `loss`; without it the group is not checked.
    """
    command, usage = _usage(into)
    parser = ArgumentParser(
        prog=f"wcl {command}",
        usage=f"wcl {command} {usage}",
        description=(
            f"{(into.__doc__ or '').strip()} RECIPE is a set of settings that go together: "
            f"{', '.join(recipe_names())}; without one it is the recipe called like the data, or "
            "folder. Any setting can be changed by name."
        ),
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="YAML file of settings.")
    if into is PretrainConfig:
        # Taken out of the words before they are parsed; named here for the help alone.
        parser.add_argument("--resume", action="store_true", help="Go on with the run in --out.")
    parser.add_class_arguments(into, as_group=False, skip={"loss"})
    if method_settings is None:
        about = "Settings of the method, as --loss.NAME VALUE; add --method NAME to see them here."
        parser.add_argument("--loss", type=dict[str, Any], default={}, help=about)
    else:
        parser.add_class_arguments(method_settings, "loss")
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


def parse(
    parser: ArgumentParser, words: list[str], into: type[Options], method: str = ""
) -> Options:
    """Parse into a dataclass, with every complaint as one line.

    Args:
        parser: of the dataclass.
        words: the command line.
        into: the dataclass.
        method: the method of the run, once it is known.

    Raises:
        InputError: an unknown setting, or a value that does not fit.
    """
    try:
        found = parser.instantiate(parser.parse_args(words))
    except ArgumentError as error:
        raise InputError(_one_line(str(error), words, into, parser, method)) from error
    except (TypeError, ValueError, RecursionError) as error:  # a file that is not settings at all
        raise InputError(f"--config: cannot be read as settings ({error})") from error
    names = {field.name for field in fields(into)}  # type: ignore[arg-type]
    return into(**{name: value for name, value in vars(found).items() if name in names})


def _one_line(
    message: str, words: list[str], into: type, parser: ArgumentParser, method: str
) -> str:
    known = list(parser.get_defaults().keys())
    if match := re.search(r"arguments are required: ([\w.]+)", message):
        return f"--{match[1]}: is missing; --help says what it can be"
    if match := re.search(r"unrecognized arguments: --([\w.]+)", message):
        return _unknown(match[1], known, method)
    if match := re.search(r"unrecognized arguments: (\S+)", message):
        return _stray(match[1], words, into, known)
    if match := re.search(r"argument (--[\w.]+): expected one argument", message):
        return f"{match[1]}: its value is missing"
    if match := re.search(r'Parser key "(\w+)":\s*Unable to load config', message):
        within = next((name for name in known if name.startswith(f"{match[1]}.")), match[1])
        return f"--{match[1]}: a group; set one of it, such as --{within}; --help lists them"
    if match := re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message):
        return _unknown(f"{match[1]}.{match[2]}", known, method)
    if match := re.search(r"(?:Option|Key) '([\w.]+)' is not (?:accepted|expected)", message):
        return _unknown(match[1], known, method)
    if match := re.search(
        r'Parser key "([\w.]+)":\s*Expected an? (.*?)\. Got value: (.*)', message, re.S
    ):
        wanted = re.sub(r"typing\.Literal|<class '(\w+)'>", r"\1", match[2])
        wanted = re.sub(r"^\[(.*)\]$", r"one of \1", wanted.strip())
        wanted = {"int": "a whole number", "float": "a number"}.get(wanted, wanted)
        return f"--{match[1]}: {match[3].splitlines()[0]!s} is not {wanted}".replace("'", "")
    if match := re.search(r'Parser key "([\w.]+)": File does not exist: (.*)', message):
        return f"--{match[1]}: no such file: {match[2]}"
    return " ".join(message.split())


def _unknown(name: str, known: list[str], method: str) -> str:
    guess = did_you_mean(name, known)
    if name.startswith("loss.") and method:
        return (
            f"--{name}: the method {method} has no such setting{guess}; "
            f"wcl pretrain --method {method} --help lists them"
        )
    return f"--{name}: no such setting{guess}; --help lists them"


def _stray(word: str, words: list[str], into: type, known: list[str]) -> str:
    """A line about a word that is not where it belongs."""
    if (name := re.match(r"-*([\w.]+)", word)) and name[1] in known:
        return f"{word}: a setting is written --{name[1]} VALUE"
    if re.fullmatch(r"[\d.,]+", word):
        return f"{word}: several values of a setting have commas between them and no spaces"
    if into in _COMMANDS and word in recipe_names():
        return f"{word}: a recipe comes before all settings: wcl {' '.join(_usage(into))}"
    for setting in ("data", "query", "to"):  # what people write without its name
        if setting in known and value_of(f"--{setting}", words) is None:
            return f"{word}: no --SETTING is before it; did you mean --{setting} {word}?"
    return f"{word}: one word too many; --help says what can be written"


def _usage(into: type) -> tuple[str, str]:
    command, usage = _COMMANDS[into]
    return command, f"{usage} [--SETTING VALUE …]"


def _run_config(words: list[str]) -> Path:
    """The settings that the run in `--out` was started with."""
    out = value_of("--out", words)
    if out is None:
        raise InputError("--out: name the folder of the run to resume")
    path = RunFolder(out).config
    if not path.is_file():
        raise InputError(f"{out}: no run to resume there; start one without --resume")
    return path


def value_of(option: str, words: list[str]) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, _, value = word.partition("=")
        if name == option:
            return value or following
    return None


def _as_text(value: Any) -> str:
    if isinstance(value, str | Path):
        return str(value)
    plain = list(value) if isinstance(value, tuple) else value
    if hasattr(plain, "item"):
        plain = plain.item()  # a number of numpy's
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("\n...\n").strip()
