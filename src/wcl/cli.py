"""The `wcl` command: parsing only. Each command is a function elsewhere, imported when called."""

import json
import sys
from collections.abc import Callable
from typing import NoReturn

from wcl import __version__
from wcl.errors import InputError, RunError, nearest

_STOPPED = 130  # as a shell reports Ctrl-C


def pretrain(words: list[str]) -> int:
    from wcl import settings

    if wants_help(words):
        settings.pretrain_parser().print_help()
        return 0
    resume = "--resume" in words
    config = settings.parse_settings([word for word in words if word != "--resume"], resume)
    from wcl import train
    from wcl.progress import console

    if not train.run(config, resume):
        return _STOPPED
    console().print(
        f"the run is in {config.out}; next: wcl eval knn {config.out} --data {config.data}",
        markup=False,
    )
    return 0


def evaluate(words: list[str]) -> int:
    from wcl.config import KnnConfig, LinearConfig
    from wcl.settings import options_parser, parse

    protocols: dict[str, type[KnnConfig] | type[LinearConfig]] = {
        "knn": KnnConfig,
        "linear": LinearConfig,
    }
    if not words or words[0] not in protocols:
        if not words or wants_help(words):
            print(f"usage: wcl eval {'|'.join(protocols)} RUN --data SRC [--json]")
            return 0 if words else 2
        raise InputError(
            f"{words[0]}: no such protocol{nearest(words[0], protocols)}; "
            f"there are {', '.join(protocols)}"
        )
    protocol, *words = words
    options = protocols[protocol]
    parser = options_parser(
        options,
        f"wcl eval {protocol}",
        f"wcl eval {protocol} RUN --data SRC [--json] [--SETTING VALUE …]",
        {"run": "Folder of a run, or an encoder's file."},
    )
    parser.add_argument("--json", action="store_true", help="One JSON object on standard output.")
    if wants_help(words):
        parser.print_help()
        return 0
    as_json, words = "--json" in words, [word for word in words if word != "--json"]
    run, rest = first_positional(words, parser.usage)
    config = parse(parser, [run, *rest], options)
    from wcl.evaluation import evaluate as evaluate_run
    from wcl.evaluation import show

    result = evaluate_run(run, protocol, config=config)
    print(json.dumps(result.as_dict())) if as_json else show(result)
    return 0


def first_positional(words: list[str], usage: str | None) -> tuple[str, list[str]]:
    if not words or words[0].startswith("-"):
        raise InputError(f"something is missing; usage: {usage}")
    return words[0], words[1:]


def wants_help(words: list[str]) -> bool:
    return "-h" in words or "--help" in words


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "pretrain": (pretrain, "pretrain an encoder on images without labels"),
    "eval": (evaluate, "evaluate an encoder: knn, linear"),
}


def usage() -> str:
    lines = [f"wcl {__version__}: an encoder from images without labels", "", "commands:"]
    lines += [f"  {name:<10} {meaning}" for name, (_, meaning) in COMMANDS.items()]
    return "\n".join([*lines, "", "wcl COMMAND --help says more."])


def run_command(words: list[str]) -> int:
    """Carry out one command line and return its exit status."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("--version", "-V"):
        print(__version__)
        return 0
    try:
        if words[0] not in COMMANDS:
            raise InputError(
                f"{words[0]}: no such command{nearest(words[0], COMMANDS)}; wcl --help lists them"
            )
        return COMMANDS[words[0]][0](words[1:])
    except (InputError, RunError) as error:
        print(f"wcl: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        print("wcl: interrupted", file=sys.stderr)
        return _STOPPED


def main() -> NoReturn:
    sys.exit(run_command(sys.argv[1:]))
