"""Parsers made from dataclasses, whose errors are one line with the setting and the remedy."""

from argparse import SUPPRESS, Action
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import fields
from functools import cached_property
from inspect import getdoc
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings

from wcl.config.hints import unknown
from wcl.config.names import nested
from wcl.system.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
_TYPES = {
    "a <class 'int'>": "a whole number",
    "a <class 'float'>": "a number",
    "a <class 'bool'>": "true or false",
    "a <class 'dict'>": "a group of settings",
    "a <class 'str'>": "text, which YAML wants in quotes here",
    "a <class 'tuple'>": "a list such as [0.2, 1]",
}


class _HelpFormatter(DefaultHelpFormatter):
    """Show defaults that say something, and no types: the placeholder of a value is enough."""

    def _get_help_string(self, action: Action) -> str:
        default = _as_typed(action.default)
        needless = action.nargs == 0 or default in ("", SUPPRESS, [], {})
        return action.help or "" if needless else f"{action.help} (default: {default})"

    def _format_action_invocation(self, action: Action) -> str:
        shown = copy(action)
        names = [name for name in action.option_strings if not name.endswith("+")]
        # A group whose settings are not known yet
        shown.option_strings = [f"{n}.NAME" if action.default == {} else n for n in names]
        return super()._format_action_invocation(shown)

    def _get_default_metavar_for_optional(self, action: Action) -> str:
        kind = (self._get_type_str(action) or "").removeprefix("Annotated[").partition(",")[0]
        return {"int": "N", "float": "X"}.get(kind, "VALUE")

    def _format_action(self, action: Action) -> str:
        is_whole_group = action.help == "Path to a configuration file."
        return "" if is_whole_group else super()._format_action(action)


def read_help() -> None:
    """Let parsers read their help from the docstrings of settings, which only --help shows."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)


class CommandParser(ArgumentParser):
    """The parser of one command, with a dataclass for its settings.

    Args:
        usage: the command and what it needs, such as `wcl embed RUN --data SRC --out FILE`.
        options: dataclass of the settings; its docstrings are the help.
        skip: settings that cannot be given to the command.
    """

    def __init__(self, usage: str, options: type, skip: Iterable[str] = ()) -> None:
        super().__init__(
            prog="wcl",
            usage=f"{usage} [--SETTING VALUE …]",
            description=getdoc(options),
            formatter_class=_HelpFormatter,
            exit_on_error=False,
            allow_abbrev=False,
        )
        self.add_class_arguments(options, as_group=False, skip=set(skip))
        for action in self._actions:
            if getattr(action, "_typehint", None) is bool:
                action.nargs, action.const = "?", True  # `--scratch` means `--scratch true`

    @cached_property
    def names(self) -> list[str]:
        """The settings by their dotted names."""
        return list(self.get_defaults().keys())

    def build(self, options: type[T], values: Mapping[str, Any]) -> T:
        """Check values by their dotted names and return the dataclass that they belong to.

        Raises:
            InputError: a value is not of its setting's type.
        """
        found = self.instantiate(self.parse_object(nested(values)))
        return construct(options, vars(found))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise InputError with a message of jsonargparse as one line."""
        raise InputError(self._one_line(message)) from ex

    def _one_line(self, message: str) -> str:
        kind, _, rest = message.partition(": ")
        if kind == "unrecognized arguments":
            word = rest.split(" ")[0]
            if word.startswith("--"):
                return unknown(word.removeprefix("--").partition("=")[0], self.names)
            return f"{word}: unexpected; usage: {self.usage}"
        if kind == "the following arguments are required":
            name = f"--{rest}" if f"--{rest} " in f"{self.usage}" else rest
            return f"missing: {name}; usage: {self.usage}"
        if rest == "expected one argument":
            return f"{kind.removeprefix('argument ')}: its value is missing"
        if message.startswith('Parser key "'):
            name = message.split('"')[1]
            expected, _, value = message.partition("Expected ")[2].partition(". Got value: ")
            if " of the Union " in message:  # such as a range or None; the first type counts
                expected = expected.splitlines()[0]
                value = message.rpartition("Given value: ")[2]
            if value:
                return f"--{name}: {value.splitlines()[0]} is not {_wanted(expected)}"
            return unknown(name, self.names)
        return " ".join(message.split())


def construct(options: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass from values that may be more than its settings."""
    names = [field.name for field in fields(options)]
    return options(**{name: values[name] for name in names})


def _as_typed(value: Any) -> Any:
    """Return a value as it is written on the command line.

    >>> _as_typed((0.2, 1.0)), _as_typed(True), _as_typed(None)
    ([0.2, 1.0], 'true', '')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    return list(value) if isinstance(value, tuple) else value


def _wanted(expected: str) -> str:
    if "Literal[" in expected:
        return f"one of {expected.partition('[')[2].rstrip(']')}".replace("'", "")
    return _TYPES.get(expected, expected)
