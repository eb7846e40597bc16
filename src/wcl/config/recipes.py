"""The recipes: YAML files with settings that go together, in the folder `wcl/recipes`.

A recipe may name another one as its `base`: it then has the settings of that one, too, and its own
override them.
"""

from functools import cache
from pathlib import Path

from wcl.system.errors import InputError, did_you_mean
from wcl.system.paths import expanded

_FOLDER = Path(__file__).parent.parent / "recipes"
_GROUPS = {  # by subfolder
    "recipes": "WCL",
    "cifar10-cpu": "Other systems on CIFAR-10, on a CPU",
    "imagenet": "Other systems on ImageNet, with their authors' settings",
}


@cache
def _files() -> dict[str, Path]:
    """Return the files of all recipes by name."""
    return {path.stem: path for path in sorted(_FOLDER.rglob("*.yaml"), key=lambda p: p.stem)}


def recipe_names() -> list[str]:
    return list(_files())


def recipe_groups() -> dict[str, list[str]]:
    """Return the names of the recipes by what they are for."""
    return {
        title: [name for name, path in _files().items() if path.parent.name == folder]
        for folder, title in _GROUPS.items()
    }


def recipe_file(name: str) -> Path:
    """Return the YAML file of a recipe.

    Raises:
        InputError: there is no recipe of that name.
    """
    files = _files()
    if name in files:
        return files[name]
    if expanded(name).exists():
        raise InputError(
            f"{name}: a path, where a recipe is expected; wcl pretrain takes images as "
            f"--data {name}, wcl views before the recipe"
        )
    raise InputError(f"{name}: no such recipe{did_you_mean(name, files)}; wcl recipes lists them")


def recipe_about(name: str) -> str:
    """Return the first line of a recipe, which says what it is for."""
    with recipe_file(name).open(encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()


def default_recipe(data: str) -> str:
    """Return the recipe for data without one: the recipe named like the data, or `folder`.

    >>> default_recipe("digits"), default_recipe("~/photos")
    ('digits', 'folder')
    """
    return data if data in _files() else "folder"
