"""The recipes: YAML files with settings that go together, in the package `wcl.recipes`."""

from pathlib import Path

from wcl.system.errors import InputError, did_you_mean
from wcl.system.paths import expanded

_FOLDER = Path(__file__).parent.parent / "recipes"


def recipe_names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def recipe_file(name: str) -> Path:
    """Return the YAML file of a recipe.

    Raises:
        InputError: there is no recipe of that name.
    """
    names = recipe_names()
    if name in names:
        return _FOLDER / f"{name}.yaml"
    if expanded(name).exists():
        raise InputError(
            f"{name}: a path, where a recipe is expected; wcl pretrain takes images as "
            f"--data {name}, wcl views before the recipe"
        )
    raise InputError(
        f"{name}: no such recipe{did_you_mean(name, names)}; there are {', '.join(names)}"
    )


def recipe_about(name: str) -> str:
    """Return the first line of a recipe, which says what it is for."""
    with recipe_file(name).open(encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()


def default_recipe(data: str) -> str:
    """Return the recipe for data without one: the recipe named like the data, or `folder`.

    >>> default_recipe("digits"), default_recipe("~/photos")
    ('digits', 'folder')
    """
    return data if data in recipe_names() else "folder"
