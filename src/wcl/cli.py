"""Command-line entry point. Commands import lazily.

Each command has its own jsonargparse parser. jsonargparse's subcommands could choose the command,
too, but their messages are worse: a missing RUN is called `eval.knn.run`, a mistyped command gets
no suggestion, and usage reads `wcl [options] eval [options] knn`. Nor are they faster. CPU seconds
without subcommands, with them, and with all their parsers built: `wcl --help` 0.08, 0.16, 0.36; a
mistyped setting of `wcl pretrain` 0.25, 0.25, 0.35.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from inspect import getdoc
from typing import Any, NamedTuple, NoReturn

from wcl import __version__
from wcl.config import (
    PROTOCOLS,
    AllConfig,
    ClusterConfig,
    DataConfig,
    DemoConfig,
    DuplicatesConfig,
    EmbedConfig,
    EvalConfig,
    ExportConfig,
    ModelConfig,
    PretrainConfig,
    ReportConfig,
    ReproduceConfig,
    SearchConfig,
    ViewsConfig,
    WatchConfig,
)
from wcl.config.command_line import choose, parse, parse_run
from wcl.config.recipes import recipe_about, recipe_file, recipe_groups, recipe_names
from wcl.system.credentials import remember_credentials
from wcl.system.data_argument import check_data
from wcl.system.errors import (
    ConnectionLost,
    InputError,
    ReportedByRankZero,
    RunError,
    describe_os_error,
)
from wcl.system.run_argument import check_run
from wcl.system.run_folder import RunFolder
from wcl.system.signals import stop_signals
from wcl.system.streams import StandardStream, open_standard_files

_STOPPED = 130  # as a shell reports Ctrl-C


def demo(words: list[str]) -> int:
    config, _ = parse(words, "wcl demo", DemoConfig)
    from wcl.apps.demo import demo

    return 0 if demo(config) else _STOPPED


def data(words: list[str]) -> int:
    config, given = parse(words, "wcl data SRC", DataConfig, "source")
    check_inputs("", given["source"])
    from wcl.apps.inspect_data import describe

    describe(config, given["source"])
    return 0


def views(words: list[str]) -> int:
    usage = "wcl views SRC [RECIPE] [--out FILE]"
    given = parse_run(words, usage, ViewsConfig, method_settings, "source")
    check_inputs("", given.changes["data"])
    from wcl.config.layering import layered

    config = layered(
        ViewsConfig,
        given.recipe,
        given.changes,
        method_settings,
        files=given.files,
        input_of=input_settings,
    )
    from wcl.apps.views import views

    views(config)
    return 0


def pretrain(words: list[str]) -> int:
    # Only here, so that no other command imports modules that lie beside a downloaded run.
    sys.path.insert(0, "")
    usage = "wcl pretrain [RECIPE] --data SRC --out RUN [--resume]"
    given = parse_run(words, usage, PretrainConfig, method_settings, "--resume")
    out, launchers = given.changes.get("out"), {"RANK", "SLURM_PROCID"}
    if out and not given.resume and not launchers & {*os.environ}:  # which may restart a run
        RunFolder(out).must_be_free()
    check_inputs("", given.changes.get("data", ""))
    from wcl.config.layering import settings

    config = settings(
        given.recipe, given.changes, method_settings, given.resume, given.files, input_settings
    )
    if os.environ.get("RANK", "0") == "0":  # of several processes
        length = f"{config.minutes:g} minutes" if config.minutes else f"{config.epochs} epochs"
        announce(f"{config.method} on {config.data} for {length}")
    from wcl.apps.pretrain import run_with_verdict

    return 0 if run_with_verdict(config, given.resume, given.recipe) else _STOPPED


def evaluate(words: list[str]) -> int:
    kinds: dict[str, type[EvalConfig]] = {**PROTOCOLS, "all": AllConfig}
    about = {name: (getdoc(kind) or "").partition(".")[0] for name, kind in kinds.items()}
    usage = "RUN [--data SRC] [--json]"
    protocol, words = choose(words, f"wcl eval PROTOCOL {usage}", "protocol", about)
    config, given = parse(words, f"wcl eval {protocol} {usage}", kinds[protocol], "run", "--json")
    run = given["run"]
    check_inputs(run, config.data, config.test_data)
    announce(f"{protocol} of {run}")
    if isinstance(config, AllConfig):
        from wcl.evaluation.evaluate_all import evaluate_all, show_all

        results = evaluate_all(run, config)
        if given["json"]:
            print(json.dumps(results))
        else:
            show_all(results)
        return 0
    from wcl.evaluation import evaluate, show

    result = evaluate(run, protocol, config=config)
    if given["json"]:
        print(json.dumps(result.as_dict()))
    else:
        show(result)
    return 0


def report(words: list[str]) -> int:
    usage = "wcl report RUN [RUN2 …] [--data SRC] [--out FILE]"
    config, given = parse(words, usage, ReportConfig, "runs")
    from wcl.report.runs import must_be_run

    for run in given["runs"]:  # now, not after the seconds that the next imports take
        must_be_run(run)
    from wcl.report.build import write_report

    write_report(given["runs"], config)
    return 0


def watch(words: list[str]) -> int:
    config, given = parse(words, "wcl watch RUN [--port 8765]", WatchConfig, "run")
    from wcl.report.watch import watch

    watch(given["run"], config)
    return 0


def embed(words: list[str]) -> int:
    config, given = parse(words, "wcl embed RUN --data SRC --out FILE", EmbedConfig, "run")
    check_inputs(given["run"], config.data)
    from wcl.apps.embed import embed

    embed(given["run"], config)
    return 0


def search(words: list[str]) -> int:
    usage = "wcl search RUN --data SRC --query FILE [-k 12] [--json]"
    config, given = parse(words, usage, SearchConfig, "run", "--query", "--json")
    check_inputs(given["run"], config.data)
    from wcl.apps.search import show_search

    show_search(given["run"], config, given["json"])
    return 0


def duplicates(words: list[str]) -> int:
    usage = "wcl duplicates RUN --data SRC [--out FILE.csv] [--json]"
    config, given = parse(words, usage, DuplicatesConfig, "run", "--json")
    check_inputs(given["run"], config.data)
    from wcl.apps.duplicates import show_duplicates

    show_duplicates(given["run"], config, given["json"])
    return 0


def cluster(words: list[str]) -> int:
    usage = "wcl cluster RUN --data SRC [--groups N] [--out FILE.csv] [--json]"
    config, given = parse(words, usage, ClusterConfig, "run", "--json")
    check_inputs(given["run"], config.data)
    from wcl.apps.cluster import show_cluster

    show_cluster(given["run"], config, given["json"])
    return 0


def export(words: list[str]) -> int:
    config, given = parse(words, "wcl export RUN --to FORMAT [--out PATH]", ExportConfig, "run")
    check_run(given["run"])
    from wcl.exporters import export

    export(given["run"], config.to, config.out)
    return 0


def recipes(words: list[str]) -> int:
    if not words:
        width = max(map(len, recipe_names()))
        for number, (title, names) in enumerate(recipe_groups().items()):
            print(f"{chr(10) * (number > 0)}{title}:")
            for name in names:
                print(f"  {name:<{width}}  {recipe_about(name)}")
    elif words[0] in ("-h", "--help"):
        print("usage: wcl recipes [NAME]\n\nList the recipes, or print one of them.")
    elif len(words) > 1:
        raise InputError(f"{words[1]}: unexpected; usage: wcl recipes [NAME]")
    else:
        print(recipe_file(words[0]).read_text(encoding="utf-8"), end="")
    return 0


def reproduce(words: list[str]) -> int:
    from wcl.paper.catalog import DESCRIPTIONS

    usage = "[--scale smoke|digits|cpu|paper] [--data SRC] [--out FOLDER] [--list] [--json]"
    table, words = choose(words, f"wcl reproduce TABLE {usage}", "table", DESCRIPTIONS)
    usage = f"wcl reproduce {table} {usage}"
    config, given = parse(words, usage, ReproduceConfig, "--list", "--json")
    from wcl.paper.run import reproduce

    return 0 if reproduce(table, config, given["json"], given["list"]) else _STOPPED


def completion(words: list[str]) -> int:
    about = {
        "bash": "put this into ~/.bashrc: source <(wcl completion bash)",
        "zsh": "put this into ~/.zshrc: source <(wcl completion zsh)",
        "fish": "put this into ~/.config/fish/config.fish: wcl completion fish | source",
    }
    shell, others = choose(words, "wcl completion SHELL", "shell", about)
    if others:
        raise InputError(f"{others[0]}: unexpected; usage: wcl completion SHELL")
    from wcl.config.completion import CommandWords, completion_script
    from wcl.paper.catalog import DESCRIPTIONS

    protocols = {**PROTOCOLS, "all": AllConfig}
    first = {"eval": protocols, "pretrain": recipe_names(), "recipes": recipe_names()}
    first |= {"reproduce": DESCRIPTIONS, "completion": about}
    known = {"": CommandWords("", list(COMMANDS))}
    for name, command in COMMANDS.items():
        known[name] = CommandWords(
            command.about, list(first.get(name, ())), command.settings, command.flags
        )
    for name, settings in protocols.items():
        known[f"eval {name}"] = CommandWords("", (), settings, ("--json",))
    print(completion_script(shell, known), end="")
    return 0


class Command(NamedTuple):
    """A command, and what the shell can complete after it."""

    run: Callable[[list[str]], int]
    about: str
    settings: type | None = None
    flags: tuple[str, ...] = ()


COMMANDS = {
    "demo": Command(
        demo, "see it work: handwritten digits, a few minutes, no download", DemoConfig
    ),
    "data": Command(
        data, "inspect a data set: how many images, sizes, classes, unreadable files", DataConfig
    ),
    "views": Command(
        views, "draw what the augmentations do to your images", ViewsConfig, ("--config",)
    ),
    "pretrain": Command(
        pretrain,
        "pretrain an encoder on images without labels",
        PretrainConfig,
        ("--resume", "--config"),
    ),
    "eval": Command(evaluate, "evaluate an encoder: unlabeled, knn, linear, finetune, and more"),
    "report": Command(
        report, "write a page about runs: scores, curves, groups, a map", ReportConfig
    ),
    "watch": Command(watch, "follow a run in the browser while it trains", WatchConfig),
    "embed": Command(
        embed, "write the features of all images to a parquet, npy or csv file", EmbedConfig
    ),
    "search": Command(
        search, "find the images most similar to a given one", SearchConfig, ("--json",)
    ),
    "duplicates": Command(
        duplicates,
        "find near-duplicate images; nothing is deleted",
        DuplicatesConfig,
        ("--json",),
    ),
    "cluster": Command(cluster, "group all images by their features", ClusterConfig, ("--json",)),
    "export": Command(
        export, "write an encoder for timm, torch, ONNX or the Hugging Face hub", ExportConfig
    ),
    "recipes": Command(recipes, "list the recipes, or print one"),
    "reproduce": Command(
        reproduce,
        "make a table of the paper: its figures, ours, the difference",
        ReproduceConfig,
        ("--list", "--json"),
    ),
    "completion": Command(completion, "print a script that completes commands in your shell"),
}


def method_settings(name: str) -> type:
    """Return the dataclass of a method's settings."""
    from wcl.methods import method_settings

    return method_settings(name)


def input_settings(model: ModelConfig) -> dict[str, Any]:
    """Return the settings that follow the weights that a run starts from."""
    from wcl.models.pretrained import input_settings

    return input_settings(model)


def check_inputs(run: str, *sources: str) -> None:
    """Raise InputError if a run or images do not exist: now, not after imports of seconds.

    Those that are not given are empty.
    """
    if run:
        check_run(run)
    for source in filter(None, sources):
        check_data(source)


def announce(doing: str) -> None:
    """Tell a person at a terminal what starts now: the imports that come first take seconds."""
    if sys.stderr.isatty():
        print(doing, file=sys.stderr)


def run_command(words: list[str]) -> int:
    """Run one command line and return its exit status."""
    try:
        about = {name: command.about for name, command in COMMANDS.items()}
        words = [_without_credentials(word) for word in words]
        if words and words[0] in ("-V", "--version"):
            print(__version__)
            return 0
        name, others = choose(words or ["--help"], "wcl COMMAND …", "command", about)
        return COMMANDS[name].run(others)
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


def _without_credentials(word: str) -> str:
    """Hide the credentials of a URL from all that commands print and write."""
    setting, mark, value = word.partition("=")
    if word.startswith("--") and mark:
        return f"{setting}={remember_credentials(value)}"
    return remember_credentials(word)


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    open_standard_files()
    sys.stdout = output = StandardStream(sys.stdout)
    sys.stderr = StandardStream(sys.stderr)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd images; unreadable ones are named
    for number in set(stop_signals()) - {signal.SIGINT}:  # before and after training, as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    status, failure = run_command(sys.argv[1:]), output.failure
    reader_is_gone = isinstance(failure, BrokenPipeError)  # such as `head`, which has enough
    if failure is not None and not reader_is_gone and status == 0:
        failure.filename = "standard output"
        print(f"wcl: {describe_os_error(failure)}", file=sys.stderr)
        status = 1
    sys.exit(status)
