"""Scripts that complete commands in a shell, made from the dataclasses of their settings."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from shlex import quote
from typing import Literal, get_args, get_origin, get_type_hints

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
_wcl() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}"
    local command="" words="" options=""
    if ((COMP_CWORD > 1)); then command="${{COMP_WORDS[1]}}"; fi
    if ((COMP_CWORD > 2)) && [[ "$command" == eval ]]; then command="eval ${{COMP_WORDS[2]}}"; fi
    case "$command" in
{commands}
    esac
    case "$command $previous" in
{choices}
        *)
            if [[ "$current" == -* ]]; then words="$options"
            elif [[ "$previous" == --* ]]; then words=""; fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _wcl wcl
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@dataclass
class CommandWords:
    """The words that may follow a command, such as `eval` or `eval knn`."""

    about: str
    words: Sequence[str] = ()
    """The choices for its first argument; files and folders if there are none."""
    settings: type | None = None
    flags: Sequence[str] = ()
    """Its options without a value."""

    def options(self) -> dict[str, Sequence[str]]:
        """Return all options with the choices for their values, if these are known."""
        settings = choices(self.settings) if self.settings else {}
        found = {f"--{name}": values for name, values in settings.items()}
        return {**found, **dict.fromkeys([*self.flags, "--help"], ())}


def choices(settings: type, prefix: str = "") -> dict[str, Sequence[str]]:
    """Return the settings of a dataclass by their dotted names, with the choices for their values.

    >>> from wcl.config import ExportConfig
    >>> choices(ExportConfig)["to"][:2]
    ('timm', 'safetensors')
    """
    hints = get_type_hints(settings)
    found: dict[str, Sequence[str]] = {}
    for field in fields(settings):
        name, hint = f"{prefix}{field.name}", hints[field.name]
        if is_dataclass(hint) and isinstance(hint, type):
            found |= choices(hint, f"{name}.")
        elif get_origin(hint) is Literal:
            found[name] = get_args(hint)
        else:
            found[name] = ("true", "false") if hint is bool else ()
    return found


def completion_script(shell: str, commands: Mapping[str, CommandWords]) -> str:
    """Return the script for a shell.

    Args:
        shell: one of SHELLS.
        commands: by name; that of the top level is empty, and `eval knn` is nested in `eval`.
    """
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands))
    script = _BASH.format(
        commands="\n".join(
            f"        {quote(name)}) words={_joined(command.words)} "
            f"options={_joined(command.options())} ;;"
            for name, command in commands.items()
        ),
        choices="\n".join(
            f"        {quote(f'{name} {option}')}) words={_joined(values)} ;;"
            for name, command in commands.items()
            for option, values in command.options().items()
            if values
        ),
    )
    return _ZSH + script if shell == "zsh" else script


def _joined(words: Iterable[str]) -> str:
    return quote(" ".join(words))


def _fish(commands: Mapping[str, CommandWords]) -> Iterator[str]:
    for name, command in commands.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        unchosen = f"{seen}; and not __fish_seen_subcommand_from {' '.join(command.words)}"
        condition = quote(unchosen if name else "__fish_use_subcommand")
        for word in command.words:
            nested = commands.get(f"{name} {word}".strip())
            about = f" -d {quote(nested.about)}" if nested else ""
            yield f"complete -c wcl -n {condition} -a {quote(word)}{about}"
        for option, values in command.options().items() if name else ():
            value = f" -x -a {_joined(values)}" if values else ""
            needed = "" if option in (*command.flags, "--help") else value or " -r"
            yield f"complete -c wcl -n {quote(seen)} -l {option.removeprefix('--')}{needed}"
