"""Files of settings: recipes, files of users, and the config.yaml of a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from wcl.config.pretraining import PretrainConfig
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


def write_config(config: PretrainConfig, path: Path) -> None:
    """Write the settings of a run, atomically."""
    with atomic_write(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        yaml.safe_dump(plain_values(asdict(config)), file, sort_keys=False, allow_unicode=True)


def plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """Convert tuples to lists, so that what is written equals what is read back."""
    return {
        name: plain_values(value)
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in values.items()
    }
