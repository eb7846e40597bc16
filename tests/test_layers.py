"""The architecture of src/wcl: packages in layers, and few modules beside them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import wcl

ROOT = Path(wcl.__file__).parent
# A package imports only those before it; imports inside functions count too.
LAYERS = [
    *("system", "config", "ops", "augment", "distributed", "data", "models", "neighbors"),
    *("methods", "training", "evaluation", "apps", "exporters", "report", "paper", "cli"),
]


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports from wcl, such as `wcl.ops.losses.swap`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the package"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "wcl")


def edges() -> Iterator[tuple[str, str, str]]:
    """Yield a file, its package and an imported name, for every import from another package."""
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT)
        package = file.with_suffix("").parts[0]
        if package in ("__init__", "__main__"):
            continue
        for name in imports(path):
            if name != "wcl.__version__" and name.split(".")[1:2] != [package]:
                yield str(file), package, name


def test_every_package_has_a_layer() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages | {"cli"} == set(LAYERS)


def test_packages_import_only_those_before_them() -> None:
    wrong = [
        f"{file} imports {name}"
        for file, package, name in edges()
        if not f"{name}.".startswith(
            tuple(f"wcl.{before}." for before in LAYERS[: LAYERS.index(package)])
        )
    ]
    assert wrong == []


def test_packages_import_no_private_names_of_others() -> None:
    wrong = [f"{file} imports {name}" for file, _, name in edges() if "._" in name]
    assert wrong == []


def test_the_top_level_shows_the_packages() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 4
