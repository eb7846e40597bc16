"""Files of settings: recipes, files of users, and the config.yaml of a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from wcl.config.names import flat
from wcl.config.pretraining import PretrainConfig
from wcl.config.recipes import recipe_file
from wcl.system.errors import InputError
from wcl.system.files import atomic_write
from wcl.system.paths import one_line


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file, unchecked.

    Raises:
        InputError: the file cannot be read, or holds no settings.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read ({one_line(str(error))})") from error
    if not isinstance(settings, dict) or not all(isinstance(name, str) for name in settings):
        raise InputError(f"{path}: holds no settings, which are lines such as `epochs: 100`")
    return settings


def read_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe by their dotted names, together with those of its base.

    >>> read_recipe("cifar10-cpu-moco")["method"], read_recipe("cifar10-cpu-moco")["epochs"]
    ('moco', 100)
    """
    own = flat(read_config(recipe_file(name)))
    base = own.pop("base", "")
    return read_recipe(base) | own if base else own


def write_config(config: PretrainConfig, path: Path) -> None:
    """Write the settings of a run, atomically."""
    _write(plain_values(asdict(config)), path)


def change_config(path: Path, **changes: Any) -> None:
    """Change settings in the file of a run; those of a group by name, as a dict."""
    values = read_config(path)
    for name, value in changes.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    _write(values, path)


def _write(values: dict[str, Any], path: Path) -> None:
    with atomic_write(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        yaml.safe_dump(values, file, sort_keys=False, allow_unicode=True)


def plain_values(value: Any) -> Any:
    """Convert tuples to lists at any depth, so that what is written equals what is read back."""
    if isinstance(value, dict):
        return {name: plain_values(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(inner) for inner in value]
    return value
