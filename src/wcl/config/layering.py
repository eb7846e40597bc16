"""Settings of a run from layers: defaults, a recipe, YAML files, and single settings.

Later layers win. A layer has settings by their dotted names (`optim.lr`). On resuming, the settings
of the run are the first layer.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wcl.config import ModelConfig, PretrainConfig
from wcl.config.hints import unknown
from wcl.config.names import flat, nested
from wcl.config.parser import CommandParser
from wcl.config.recipes import recipe_file
from wcl.config.run_config import read_config, read_recipe
from wcl.system.credentials import remember_credentials
from wcl.system.errors import InputError, did_you_mean
from wcl.system.paths import expanded
from wcl.system.run_folder import RunFolder

T = TypeVar("T", bound=PretrainConfig)
SettingsOf = Callable[[str], type]
"""From the name of a method to the dataclass of its settings. This package may not import methods,
so callers pass in how to find them."""
InputOf = Callable[[ModelConfig], dict[str, Any]]
"""From the network to the settings in `FOLLOW_WEIGHTS`, as its pretrained weights need them."""
FOLLOW_WEIGHTS = ("image_size", "augment.mean", "augment.std")
RENAMED = {  # the names of older versions
    "batch": "batch_size",
    "micro_batch": "micro_batch_size",
    "size": "image_size",
    "workers": "num_workers",
    "wait": "timeout_minutes",
    "most_unreadable": "max_unreadable_fraction",
    "early_epochs": "mild_augment_epochs",
    "optim.rate": "optim.lr",
    "optim.rule": "optim.lr_scaling",
    "optim.warmup": "optim.warmup_epochs",
    "augment.area": "augment.scale",
    "augment.grey": "augment.grayscale",
    "crops.area": "crops.scale",
    "crops.neighbours": "crops.neighbors",
    "model.head_width": "model.head_hidden_dim",
    "model.head_out": "model.head_out_dim",
    "loss.tau": "loss.temperature",
}


class Layer(NamedTuple):
    """Some settings, and the file that they are from, if any."""

    values: dict[str, Any]
    file: Path | None = None


def settings(
    recipe: str,
    changes: Mapping[str, Any],
    settings_of: SettingsOf,
    resume: bool = False,
    files: Iterable[str | Path] = (),
    input_of: InputOf | None = None,
) -> PretrainConfig:
    """Return the settings of a run: see `layered`.

    >>> from wcl.methods import method_settings
    >>> settings("digits", {"epochs": 3, "optim__lr": 0.01}, method_settings).optim.lr
    0.01
    """
    return layered(PretrainConfig, recipe, changes, settings_of, resume, files, input_of)


def layered(
    into: type[T],
    recipe: str,
    changes: Mapping[str, Any],
    settings_of: SettingsOf,
    resume: bool = False,
    files: Iterable[str | Path] = (),
    input_of: InputOf | None = None,
) -> T:
    """Return settings of which later layers override earlier ones.

    Args:
        into: dataclass of the settings.
        recipe: name of the recipe; empty for none.
        changes: single settings, those in a group as a dict, with a dot or two underscores.
        settings_of: returns the dataclass of a method's settings.
        resume: whether the settings of the run in `out` come first.
        files: YAML files of settings.
        input_of: returns the settings that follow the weights that a run starts from.

    Raises:
        InputError: a setting is unknown or has a value of another type, or a file cannot be read.
    """
    given = flat({name.replace("__", "."): value for name, value in changes.items()})
    if given.get("minutes") and "epochs" in given:
        raise InputError("--minutes: sets the number of epochs; leave out either it or --epochs")
    layers = []
    if resume:
        layers.append(_read(_run_config(given.get("out", ""))))
    if recipe:
        of_recipe = read_recipe(recipe)
        if resume:  # other epochs extend the run, which nobody asks for by naming its recipe
            of_recipe = {n: v for n, v in of_recipe.items() if n not in ("epochs", "minutes")}
        layers.append(Layer(of_recipe, recipe_file(recipe)))
    layers += [_read(expanded(file)) for file in files]
    layers.append(Layer({name: _plain(value) for name, value in given.items()}))
    _check(layers, settings_parser(into))  # all but the method's: its import takes seconds
    values = _merged(layers)
    method = values.get("method", into.method)
    if resume and (trained := layers[0].values.get("method", method)) != method:
        raise InputError(
            f"{layers[0].file}: the run was trained with method={trained}, not {method}; resume it "
            "without a recipe or other settings, or start another run with a new --out"
        )
    parser = settings_parser(into, settings_of(method))
    _check(layers, parser, method)
    values["data"] = remember_credentials(values.get("data", into.data))
    config = parser.build(into, values)
    if input_of is not None and config.model.weights:
        open_settings = {*FOLLOW_WEIGHTS} - _chosen(layers, recipe)
        if open_settings:  # a run that is resumed has none, and may have lost the weights
            following = input_of(config.model)
            values |= {name: following[name] for name in open_settings}
            config = parser.build(into, values)
    return config


def _merged(layers: list[Layer]) -> dict[str, Any]:
    """Return the settings of all layers; a layer with `epochs` only turns earlier `minutes` off."""
    values: dict[str, Any] = {}
    for layer in layers:
        if "epochs" in layer.values:
            values.pop("minutes", None)
        values |= layer.values
    return values


def _chosen(layers: list[Layer], recipe: str) -> set[str]:
    """Return the settings that the user chose.

    Those of a recipe do not count, unless it names the weights too.
    """
    file = recipe_file(recipe) if recipe else None
    return {
        name
        for layer in layers
        if file is None or layer.file != file or "model.weights" in layer.values
        for name in layer.values
    }


def settings_parser(
    into: type[PretrainConfig], method_settings: type | None = None, usage: str = ""
) -> CommandParser:
    """Return a parser of the settings of a run.

    Args:
        into: dataclass of the settings.
        method_settings: dataclass of the group `loss`; without it the group is not checked.
        usage: the command.
    """
    parser = CommandParser(usage, into, skip=["loss"])
    if method_settings is None:
        about = "Setting of the method; name a recipe or a --method to see them here."
        parser.add_argument("--loss", type=dict[str, Any], default={}, help=about)
    else:
        parser.add_class_arguments(method_settings, "loss")
    return parser


def _read(file: Path) -> Layer:
    return Layer(flat(read_config(file)), file)


def _run_config(out: str) -> Path:
    """Return the file of settings of the run to resume."""
    if not out:
        raise InputError("--out: name the folder of the run to resume")
    path = RunFolder(out).config
    if not path.is_file():
        raise InputError(f"{out}: no run to resume there; start one without --resume")
    return path


def _check(layers: list[Layer], parser: CommandParser, method: str = "") -> None:
    """Raise InputError for an unknown setting or a value of another type, with its file.

    Args:
        layers: the settings.
        parser: knows the names and types.
        method: the method whose settings the parser knows, if any.
    """
    for layer in layers:
        try:
            for name, value in layer.values.items():
                if value is None:
                    raise InputError(f"--{name}: its value is missing")
                if name not in parser.names and (method or not name.startswith("loss.")):
                    raise InputError(_unknown(name, parser.names, method, layer.file))
            parser.parse_object(nested(layer.values), defaults=False)
        except InputError as error:
            if layer.file is None:
                raise
            raise InputError(f"{layer.file}: {str(error).removeprefix('--')}") from error


def _unknown(name: str, known: list[str], method: str, file: Path | None) -> str:
    if file and name in RENAMED:
        return f"{name} is now {RENAMED[name]}; the file is from an older version of wcl"
    if name.startswith("loss."):
        return (
            f"--{name}: the method {method} has no such setting{did_you_mean(name, known)}; "
            f"wcl pretrain --method {method} --help lists them"
        )
    return unknown(name, known, dashes="" if file else "--")


def _plain(value: Any) -> Any:
    """Return a path as text and a number of numpy as one of Python."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") else value
