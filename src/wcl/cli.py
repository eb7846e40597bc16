"""Command-line entry point. Commands import lazily.

Each command has its own jsonargparse parser. jsonargparse's subcommands could also choose the
command, but cost CPU seconds (measured on two cores): `wcl --help` takes 0.06 without them, 0.18
with them and 0.32 if all parsers are built; a mistyped setting 0.25, 0.24 and 0.33. And their
messages cannot be made as clear: a missing RUN is called `eval.knn.run`, a mistyped command gets no
suggestion, and usage reads `wcl [options] eval [options] knn`.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from inspect import getdoc
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from wcl import __version__
from wcl.system.errors import (
    ConnectionLost,
    InputError,
    ReportedByRankZero,
    RunError,
    describe_os_error,
    did_you_mean,
)
from wcl.system.signals import stop_signals
from wcl.system.streams import StandardStream, open_standard_files

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from wcl.config import PretrainConfig
    from wcl.config.parser import CommandParser

T = TypeVar("T", bound="DataclassInstance")
_STOPPED = 130  # as a shell reports Ctrl-C
_ALIASES = {"-k": "--k", "--from": "--start"}  # of settings that Python or YAML cannot name so


def demo(words: list[str]) -> int:
    from wcl.config import DemoConfig

    config, _ = parse(words, "wcl demo", DemoConfig)
    from wcl.apps.demo import demo

    return 0 if demo(config) else _STOPPED


def data(words: list[str]) -> int:
    from wcl.config import DataConfig

    config, given = parse(words, "wcl data SRC", DataConfig, "source")
    from wcl.apps.inspect_data import describe

    describe(config, given["source"])
    return 0


def views(words: list[str]) -> int:
    from wcl.config import ViewsConfig
    from wcl.config.layering import default_recipe, layered

    usage = "wcl views SRC [RECIPE] [--out FILE]"
    given, recipe, files = parse_run(words, usage, ViewsConfig, "source")
    given["data"] = given.pop("source")
    recipe = recipe or ("" if files else default_recipe(given["data"]))
    config = layered(ViewsConfig, recipe, given, method_settings, files=files)
    from wcl.apps.views import views

    views(config)
    return 0


def pretrain(words: list[str]) -> int:
    from wcl.config import PretrainConfig
    from wcl.config.layering import default_recipe, settings

    usage = "wcl pretrain [RECIPE] --data SRC --out RUN [--resume]"
    given, recipe, files = parse_run(words, usage, PretrainConfig, "--resume")
    resume = given.pop("resume", False)
    recipe = recipe or ("" if files or resume else default_recipe(given.get("data", "")))
    config = settings(recipe, given, method_settings, resume, files)
    if os.environ.get("RANK", "0") == "0":  # of several processes
        announce(f"{config.method} on {config.data} for {config.epochs} epochs")
    from wcl.apps.pretrain import run

    return 0 if run(config, resume, recipe) else _STOPPED


def evaluate(words: list[str]) -> int:
    from wcl.config import PROTOCOLS, AllConfig, EvalConfig

    kinds: dict[str, type[EvalConfig]] = {**PROTOCOLS, "all": AllConfig}
    about = {name: (getdoc(kind) or "").partition(".")[0] for name, kind in kinds.items()}
    usage = "RUN --data SRC [--json]"
    protocol, words = choose(words, f"wcl eval PROTOCOL {usage}", "protocol", about)
    config, given = parse(words, f"wcl eval {protocol} {usage}", kinds[protocol], "run", "--json")
    run = given["run"]
    must_have_weights(run)
    announce(f"{protocol} of {run}")
    if isinstance(config, AllConfig):
        from wcl.evaluation.evaluate_all import evaluate_all, show_all

        results = evaluate_all(run, config)
        print_json(results) if given["json"] else show_all(results)
        return 0
    from wcl.evaluation import evaluate, show

    result = evaluate(run, protocol, config=config)
    print_json(result.as_dict()) if given["json"] else show(result)
    return 0


def report(words: list[str]) -> int:
    from wcl.config import ReportConfig

    usage = "wcl report RUN [RUN2 …] [--data SRC] [--out FILE]"
    config, given = parse(words, usage, ReportConfig, "runs")
    from wcl.report.runs import must_be_run

    for run in given["runs"]:  # now, not after the seconds that the next imports take
        must_be_run(run)
    from wcl.report.build import write_report

    write_report(given["runs"], config)
    return 0


def watch(words: list[str]) -> int:
    from wcl.config import WatchConfig

    config, given = parse(words, "wcl watch RUN [--port 8765]", WatchConfig, "run")
    from wcl.report.watch import watch

    watch(given["run"], config)
    return 0


def embed(words: list[str]) -> int:
    from wcl.config import EmbedConfig

    config, given = parse(words, "wcl embed RUN --data SRC --out FILE", EmbedConfig, "run")
    must_have_weights(given["run"])
    from wcl.apps.embed import embed

    embed(given["run"], config)
    return 0


def search(words: list[str]) -> int:
    from wcl.config import SearchConfig

    usage = "wcl search RUN --data SRC --query FILE [-k 12] [--json]"
    config, given = parse(words, usage, SearchConfig, "run", "--query", "--json")
    must_have_weights(given["run"])
    from wcl.apps.search import show_search

    show_search(given["run"], config, given["json"])
    return 0


def duplicates(words: list[str]) -> int:
    from wcl.config import DuplicatesConfig

    usage = "wcl duplicates RUN --data SRC [--json]"
    config, given = parse(words, usage, DuplicatesConfig, "run", "--json")
    must_have_weights(given["run"])
    from wcl.apps.duplicates import show_duplicates

    show_duplicates(given["run"], config, given["json"])
    return 0


def export(words: list[str]) -> int:
    from wcl.config import ExportConfig

    config, given = parse(words, "wcl export RUN --to FORMAT [--out PATH]", ExportConfig, "run")
    must_have_weights(given["run"])
    from wcl.exporters import export

    export(given["run"], config.to, config.out)
    return 0


def recipes(words: list[str]) -> int:
    from wcl.config.layering import recipe_file, recipe_names

    if not words:
        for name in recipe_names():
            about = recipe_file(name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            print(f"{name:<21} {about}")
    elif words[0] in ("-h", "--help"):
        print("usage: wcl recipes [NAME]\n\nList the recipes, or print one of them.")
    else:
        print(recipe_file(words[0]).read_text(encoding="utf-8"), end="")
    return 0


def reproduce(words: list[str]) -> int:
    from wcl.config import ReproduceConfig
    from wcl.paper.catalog import DESCRIPTIONS

    usage = "[--scale smoke|digits|cpu|paper] [--data SRC] [--out FOLDER] [--list] [--json]"
    table, words = choose(words, f"wcl reproduce TABLE {usage}", "table", DESCRIPTIONS)
    usage = f"wcl reproduce {table} {usage}"
    config, given = parse(words, usage, ReproduceConfig, "--list", "--json")
    from wcl.paper.run import reproduce

    return 0 if reproduce(table, config, given["json"], given["list"]) else _STOPPED


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "demo": (demo, "see it work: handwritten digits, a few minutes, no download"),
    "data": (data, "inspect a data set: how many images, sizes, classes, unreadable files"),
    "views": (views, "draw what the augmentations do to your images"),
    "pretrain": (pretrain, "pretrain an encoder on images without labels"),
    "eval": (evaluate, "evaluate an encoder: knn, linear, finetune, lowshot, project, all"),
    "report": (report, "write a page about runs: scores, curves, groups, a map"),
    "watch": (watch, "follow a run in the browser while it trains"),
    "embed": (embed, "write the features of all images to a parquet, npy or csv file"),
    "search": (search, "find the images most similar to a given one"),
    "duplicates": (duplicates, "find near-duplicate images; nothing is deleted"),
    "export": (export, "write an encoder for timm, torch, ONNX or the Hugging Face hub"),
    "recipes": (recipes, "list the recipes, or print one"),
    "reproduce": (reproduce, "make a table of the paper: its figures, ours, the difference"),
}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "run": {"metavar": "RUN", "help": "Folder of a run, or a file of weights."},
    "runs": {"metavar": "RUN", "nargs": "+", "help": "Folder of a run."},
    "source": {"metavar": "SRC", "help": "Images, as for `wcl pretrain --data`."},
    "recipe": {"metavar": "RECIPE", "nargs": "?", "help": "Settings that go together; see above."},
    "--config": {"action": "append", "metavar": "FILE", "help": "YAML file of settings."},
    "--resume": {"action": "store_true", "help": "Continue the run in --out."},
    "--query": {
        "action": "append",
        "default": [],
        "metavar": "FILE",
        "help": "Image to compare with; several with commas between, or with --query again.",
    },
    "--json": {"action": "store_true", "help": "Print one JSON object."},
    "--list": {
        "action": "store_true",
        "help": "Only list the cells, the data that they need and how long they might take.",
    },
}


def choose(
    words: list[str], usage: str, what: str, known: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return the first word, which must be one of the known, and the others."""
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
    """Return the settings of a command, and all that was given by name."""
    from wcl.config.parser import CommandParser, construct

    names = [argument.removeprefix("--") for argument in arguments]
    parser = CommandParser(usage, options, skip=names)
    for argument in arguments:
        parser.add_argument(argument, **_ARGUMENTS[argument])
    given = parser.parse_args([with_long_name(word) for word in words]).as_dict()
    return construct(options, given), given


def parse_run(
    words: list[str], usage: str, options: "type[PretrainConfig]", *arguments: str
) -> tuple[dict[str, Any], str, list[str]]:
    """Return the settings of a run that were given to a command, the recipe and the files."""
    from wcl.config import flat
    from wcl.config.layering import recipe_names, settings_parser

    def parser(method_settings: type | None = None) -> "CommandParser":
        parser = settings_parser(options, method_settings, usage)
        parser.description = (
            f"{parser.description} RECIPE is one of {', '.join(recipe_names())}; without it, the "
            "one named like the data, or folder. Each setting can be changed by its name."
        )
        for argument in (*arguments, "recipe", "--config"):
            parser.add_argument(argument, **_ARGUMENTS[argument])
        return parser

    if {"-h", "--help"} & {*words}:
        parts = [part for word in words for part in word.split("=")]
        method = dict(pairwise(parts)).get("--method")
        parser(method_settings(method) if method else None).print_help()
        raise SystemExit(0)
    given = flat(parser().parse_args(words, defaults=False).as_dict())
    return given, given.pop("recipe", None) or "", given.pop("config", None) or []


def with_long_name(word: str) -> str:
    """Replace the alias of a setting.

    >>> with_long_name("--from=pool")
    '--start=pool'
    """
    name, equals, value = word.partition("=")
    return f"{_ALIASES.get(name, name)}{equals}{value}"


def method_settings(name: str) -> type:
    """Return the dataclass of a method's settings."""
    from wcl.methods import method_settings

    return method_settings(name)


def must_have_weights(run: str) -> None:
    """Raise InputError if a run has no encoder, before the imports that take seconds."""
    from wcl.system.run_folder import weights_of

    weights_of(run)


def announce(doing: str) -> None:
    """Tell a person at a terminal what starts now: the imports that come first take seconds."""
    if sys.stderr.isatty():
        print(doing, file=sys.stderr)


def print_json(result: Any) -> None:
    print(json.dumps(result))


def run_command(words: list[str]) -> int:
    """Run one command line and return its exit status."""
    about = {name: about for name, (_, about) in COMMANDS.items()}
    try:
        if words and words[0] in ("-V", "--version"):
            print(__version__)
            return 0
        name, others = choose(words or ["--help"], "wcl COMMAND …", "command", about)
        return COMMANDS[name][0](others)
    except SystemExit:  # after the help
        return 0 if words else 2
    except (InputError, RunError) as error:
        print(f"wcl: {' '.join(str(error).splitlines())}", file=sys.stderr)
        if isinstance(error, ConnectionLost):
            # What still waits for the lost process inside torch may never end, nor let us end.
            sys.stderr.flush()
            os._exit(1)
        return 2 if isinstance(error, InputError) else 1
    except ReportedByRankZero as error:
        return error.status
    except OSError as error:  # a full disk, a file that vanished, a folder without permission
        print(f"wcl: {describe_os_error(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        for number in stop_signals():
            signal.signal(number, signal.SIG_IGN)  # stopping already
        print("wcl: interrupted", file=sys.stderr)
        return _STOPPED


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    open_standard_files()
    sys.stdout = output = StandardStream(sys.stdout)
    sys.stderr = StandardStream(sys.stderr)
    for number in set(stop_signals()) - {signal.SIGINT}:  # before and after training, as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd images; unreadable ones are named
    status, failure = run_command(sys.argv[1:]), output.failure
    reader_is_gone = isinstance(failure, BrokenPipeError)  # such as `head`, which has enough
    if failure is not None and not reader_is_gone and status == 0:
        failure.filename = "standard output"
        print(f"wcl: {describe_os_error(failure)}", file=sys.stderr)
        status = 1
    sys.exit(status)
