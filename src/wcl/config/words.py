"""The words of a command line: what comes first, flags, and the options of a command."""

from collections.abc import Mapping
from typing import TypeVar

from wcl.system.errors import InputError, did_you_mean

T = TypeVar("T")


class HelpShown(Exception):
    """The user asked for help and got it."""


def options(kind: type[T], command: str, words: list[str], usage: str = "") -> T:
    """Parse the options of a command, or show its help."""
    from wcl.config.layering import options_parser, parse

    usage = " ".join(["wcl", command, *([usage] if usage else []), "[--SETTING VALUE …]"])
    parser = options_parser(kind, f"wcl {command}", usage)
    if wants_help(words):
        parser.print_help()
        raise HelpShown
    return parse(parser, words, kind)


def positional(what: str, words: list[str], usage: str) -> tuple[str, list[str]]:
    """The first word, and the others; for help there need not be one."""
    if wants_help(words):
        return "", words
    if not words:
        raise InputError(f"the {what} is missing; usage: {usage}")
    if words[0].startswith("-"):
        raise InputError(f"{words[0]}: the {what} comes first; usage: {usage}")
    return words[0], words[1:]


def choice(
    command: str, what: str, known: Mapping[str, str], words: list[str], usage: str
) -> tuple[str, list[str]]:
    """The first word, which must be one of the known; their meanings are for the help."""
    line = f"wcl {command} {'|'.join(known)} {usage}"
    if words and words[0] in known:
        return words[0], words[1:]
    if wants_help(words):
        longest = max(map(len, known))
        meanings = "\n".join(f"  {name:<{longest}}  {means}" for name, means in known.items())
        print(f"usage: {line}\n\n{meanings}\n\nwcl {command} NAME --help says more.")
        raise HelpShown
    if not words:
        raise InputError(f"the {what} is missing; usage: {line}")
    if words[0].startswith("-"):
        raise InputError(f"{words[0]}: the {what} comes first; usage: {line}")
    if len(words) > 1 and words[1] in known:
        raise InputError(f"{words[1]}: the {what} comes first; usage: {line}")
    raise InputError(
        f"{words[0]}: no such {what}{did_you_mean(words[0], known)}; there are {', '.join(known)}"
    )


def take_flag(flag: str, words: list[str]) -> tuple[bool, list[str]]:
    return flag in words, [word for word in words if word != flag]


def take_values(option: str, words: list[str]) -> tuple[list[str], list[str]]:
    """All values of an option that may be given more than once, and the other words."""
    values, others = [], []
    following = iter(words)
    for word in following:
        name, equals, value = word.partition("=")
        if name != option:
            others.append(word)
            continue
        value = value if equals else next(following, "")
        if not value or value.startswith("--"):
            raise InputError(f"{option}: the file is missing")
        values.append(value)
    return values, others


def wants_help(words: list[str]) -> bool:
    return "-h" in words or "--help" in words
