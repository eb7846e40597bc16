"""The `wcl` command: from its words to a function elsewhere, which is imported when called."""

import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from inspect import getdoc
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from wcl import __version__
from wcl.config.words import (
    HelpShown,
    choice,
    options,
    positional,
    take_flag,
    take_values,
    wants_help,
)
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
    from wcl.config import PretrainConfig

_STOPPED = 130  # as a shell reports Ctrl-C


def pretrain(words: list[str]) -> int:
    from wcl.config import PretrainConfig
    from wcl.config import layering as settings

    if wants_help(words):
        print_settings(PretrainConfig, words)
        return 0
    resume, words = take_flag("--resume", words)
    config = settings.parse_settings(words, method_settings, resume)
    if os.environ.get("RANK", "0") == "0":  # of several processes
        sign_of_life(f"{config.method} on {config.data} for {config.epochs} epochs")
    from wcl.training import loop as train

    return 0 if train.run(config, resume, settings.recipe_of(words, resume)) else _STOPPED


def evaluate(words: list[str]) -> int:
    from wcl.config import PROTOCOLS, AllConfig

    usage = "RUN --data SRC [--json]"
    kinds = {**PROTOCOLS, "all": AllConfig}
    known = {name: (getdoc(kind) or "").partition(".")[0] for name, kind in kinds.items()}
    protocol, words = choice("eval", "protocol", known, words, usage)
    as_json, words = take_flag("--json", words)
    run, words = positional("run", words, f"wcl eval {protocol} {usage}")
    if protocol == "all":
        every = options(AllConfig, "eval all", words, usage)
        must_have_weights(run)
        sign_of_life(f"all evaluations of {run}")
        from wcl.evaluation.evaluate_all import evaluate_all, show_all

        found = evaluate_all(run, every)
        if as_json:
            print(json.dumps(found))
        else:
            show_all(found)
        return 0
    if protocol == "finetune":  # `from` cannot be the name of a setting in Python
        words = [re.sub(r"^--from(?==|$)", "--start", word) for word in words]
    config = options(PROTOCOLS[protocol], f"eval {protocol}", words, usage)
    must_have_weights(run)
    sign_of_life(f"{protocol} of {run}")
    from wcl.evaluation import evaluate as evaluate_run
    from wcl.evaluation import show

    result = evaluate_run(run, protocol, config=config)
    if as_json:
        print(json.dumps(result.as_dict()))
    else:
        show(result)
    return 0


def embed(words: list[str]) -> int:
    from wcl.config import EmbedConfig

    usage = "RUN --data SRC --out FILE"
    run, words = positional("run", words, f"wcl embed {usage}")
    config = options(EmbedConfig, "embed", words, usage)
    must_have_weights(run)
    from wcl.apps.embed import embed as embed_images

    embed_images(run, config)
    return 0


def search(words: list[str]) -> int:
    from wcl.config import SearchConfig

    usage = "RUN --data SRC --query FILE [-k 12] [--json]"
    as_json, words = take_flag("--json", words)
    run, words = positional("run", words, f"wcl search {usage}")
    queries, words = take_values("--query", words)
    words = ["--k" if word == "-k" else word for word in words]
    config = options(SearchConfig, "search", words, usage)
    config.query = queries
    must_have_weights(run)
    from wcl.apps.search import show_search

    show_search(run, config, as_json)
    return 0


def duplicates(words: list[str]) -> int:
    from wcl.config import DuplicatesConfig

    usage = "RUN --data SRC [--json]"
    as_json, words = take_flag("--json", words)
    run, words = positional("run", words, f"wcl duplicates {usage}")
    config = options(DuplicatesConfig, "duplicates", words, usage)
    must_have_weights(run)
    from wcl.apps.duplicates import show_duplicates

    show_duplicates(run, config, as_json)
    return 0


def report(words: list[str]) -> int:
    from wcl.config import ReportConfig

    usage = "RUN [RUN2 …] [--data SRC] [--out FILE]"
    run, words = positional("run", words, f"wcl report {usage}")
    runs = [run, *takewhile(lambda word: not word.startswith("-"), words)]
    config = options(ReportConfig, "report", words[len(runs) - 1 :], usage)
    from wcl.report.runs import must_be_run

    for run in runs:  # now, not after the seconds that the next imports take
        must_be_run(run)
    from wcl.report.build import write_report

    write_report(runs, config)
    return 0


def watch(words: list[str]) -> int:
    from wcl.config import WatchConfig

    usage = "RUN [--port 8765]"
    run, words = positional("run", words, f"wcl watch {usage}")
    config = options(WatchConfig, "watch", words, usage)
    from wcl.report.watch import watch as watch_run

    watch_run(run, config)
    return 0


def export(words: list[str]) -> int:
    from wcl.config import ExportConfig

    usage = "RUN --to FORMAT [--out PATH]"
    run, words = positional("run", words, f"wcl export {usage}")
    config = options(ExportConfig, "export", words, usage)
    must_have_weights(run)
    from wcl.exporters import export as export_run

    export_run(run, config.to, config.out)
    return 0


def data(words: list[str]) -> int:
    from wcl.config import DataConfig

    source, words = positional("source", words, "wcl data SRC")
    config = options(DataConfig, "data", words, "SRC")
    from wcl.apps.inspect_data import describe

    describe(config, source)
    return 0


def views(words: list[str]) -> int:
    from wcl.config import ViewsConfig
    from wcl.config import layering as settings

    if wants_help(words):
        print_settings(ViewsConfig, words)
        return 0
    usage = "wcl views SRC [RECIPE] [--out FILE]"
    source, words = positional("source", words, usage)
    recipe = words[:1] if words and not words[0].startswith("-") else []
    if source in settings.recipe_names() and recipe and Path(recipe[0]).expanduser().exists():
        raise InputError(f"{source}: the images come first: wcl views {recipe[0]} {source}")
    words = [*recipe, "--data", source, *words[len(recipe) :]]
    config = settings.parse_views(words, method_settings)
    from wcl.apps.views import views as write_views

    write_views(config)
    return 0


def demo(words: list[str]) -> int:
    from wcl.config import DemoConfig

    config = options(DemoConfig, "demo", words)
    from wcl.apps.demo import demo as run_demo

    return 0 if run_demo(config) else _STOPPED


def reproduce(words: list[str]) -> int:
    from wcl.config import ReproduceConfig
    from wcl.paper.catalog import DESCRIPTIONS

    usage = "[--scale smoke|digits|cpu|paper] [--data SRC] [--out FOLDER] [--list] [--json]"
    name, words = choice("reproduce", "table", DESCRIPTIONS, words, usage)
    as_json, words = take_flag("--json", words)
    wants_list, words = take_flag("--list", words)
    config = options(ReproduceConfig, f"reproduce {name}", words, usage)
    from wcl.paper.run import reproduce as make_table

    return 0 if make_table(name, config, as_json, wants_list) else _STOPPED


def recipes(words: list[str]) -> int:
    from wcl.config.layering import recipe_file, recipe_names

    if wants_help(words):
        print("usage: wcl recipes [NAME]\n\nList the recipes, or print one of them.")
    elif words:
        print(recipe_file(words[0]).read_text(), end="")
    else:
        for name in recipe_names():
            about = recipe_file(name).read_text().splitlines()[0].removeprefix("# ")
            print(f"{name:<21} {about}")
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "demo": (demo, "see it work: handwritten digits, a few minutes, no download"),
    "data": (data, "look at a data set: how many images, sizes, classes, unreadable files"),
    "views": (views, "write a picture of what the augmentations do to your images"),
    "pretrain": (pretrain, "pretrain an encoder on images without labels"),
    "eval": (evaluate, "evaluate an encoder: knn, linear, finetune, lowshot, project, all"),
    "report": (report, "write a page about runs: scores, curves, groups, a map"),
    "watch": (watch, "follow a run in the browser while it trains"),
    "embed": (embed, "write the vectors of all images to a parquet, npy or csv file"),
    "search": (search, "find the images most like a given one, and draw them"),
    "duplicates": (duplicates, "find images that are nearly the same; nothing is deleted"),
    "export": (export, "write an encoder for timm, torch, ONNX or the Hugging Face hub"),
    "recipes": (recipes, "list the recipes, or print one"),
    "reproduce": (reproduce, "make a table of the paper: its figures, ours, the difference"),
}


def method_settings(name: str) -> type:
    """Return the dataclass of a method's settings."""
    from wcl.methods import method_settings

    return method_settings(name)


def print_settings(into: "type[PretrainConfig]", words: list[str]) -> None:
    """Print the help of a command that takes the settings of a run."""
    from wcl.config.layering import settings_parser, value_of

    method = value_of("--method", words)
    settings_parser(into, method_settings(method) if method else None).print_help()


def must_have_weights(run: str) -> None:
    """Raise InputError if there is no encoder: now, not after the seconds that imports take."""
    from wcl.system.run_folder import weights_of

    weights_of(run)


def sign_of_life(doing: str) -> None:
    """Tell a person what is about to be done: the imports that come first take seconds."""
    if sys.stderr.isatty():
        print(doing, file=sys.stderr)


def overview() -> str:
    lines = [f"wcl {__version__}: an encoder from images without labels", "", "commands:"]
    lines += [f"  {name:<10} {meaning}" for name, (_, meaning) in COMMANDS.items()]
    return "\n".join([*lines, "", "wcl COMMAND --help says more."])


def run_command(words: list[str]) -> int:
    """Carry out one command line and return its exit status."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("--version", "-V"):
        print(__version__)
        return 0
    try:
        if words[0] not in COMMANDS:
            raise InputError(
                f"{words[0]}: no such command{did_you_mean(words[0], COMMANDS)}; "
                "wcl --help lists them"
            )
        return COMMANDS[words[0]][0](words[1:])
    except HelpShown:
        return 0
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
            signal.signal(number, signal.SIG_IGN)  # it is on its way already
        print("wcl: interrupted", file=sys.stderr)
        return _STOPPED


def main() -> NoReturn:
    open_standard_files()
    sys.stdout = output = StandardStream(sys.stdout)
    sys.stderr = StandardStream(sys.stderr)
    for number in set(stop_signals()) - {signal.SIGINT}:  # before and after training like Ctrl-C
        signal.signal(number, signal.default_int_handler)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of odd images; unreadable ones are named
    status, failure = run_command(sys.argv[1:]), output.failure
    has_seen_enough = isinstance(failure, BrokenPipeError)  # the reader, such as `head`
    if failure is not None and not has_seen_enough and status == 0:
        failure.filename = "standard output"
        print(f"wcl: {describe_os_error(failure)}", file=sys.stderr)
        status = 1
    sys.exit(status)
