"""What is published: the wheel, the citation, and the systems and versions that are tested."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from wcl import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, because setuptools leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    (wheel,) = copy.glob("*.whl")
    return wheel


def test_the_wheel_has_all_files_of_the_package_and_no_others(wheel: Path) -> None:
    files = (ROOT / "src/wcl").rglob("*")
    expected = {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected
    for kind in ("recipes/imagenet/*.yaml", "report/templates/*.html", "paper/figures.yaml"):
        assert any(Path(name).match(f"wcl/{kind}") for name in packed), kind
    assert "wcl/py.typed" in packed


def test_the_wheel_is_named_wcl_torch_and_has_the_command_wcl(wheel: Path) -> None:
    with ZipFile(wheel) as content:
        info = f"wcl_torch-{__version__}.dist-info"
        metadata = message_from_bytes(content.read(f"{info}/METADATA"))
        scripts = ConfigParser()
        scripts.read_string(content.read(f"{info}/entry_points.txt").decode())
    assert (metadata["Name"], metadata["Version"]) == ("wcl-torch", __version__)
    assert dict(scripts["console_scripts"]) == {"wcl": "wcl.cli:main"}


def test_messages_and_documents_name_extras_of_this_distribution() -> None:
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    named = {
        found for text in texts for found in re.findall(r"pip install '([^']*\[[^{]*?\])'", text)
    }
    known = {f"{PROJECT['name']}[{extra}]" for extra in PROJECT["optional-dependencies"]}
    assert named and named <= known


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]


def test_the_workflow_tests_the_versions_of_python_that_are_listed() -> None:
    text = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    tested = yaml.safe_load(text)["jobs"]["test"]["strategy"]["matrix"]["python"]
    listed = [re.search(r":: Python :: (3\.\d+)$", line) for line in PROJECT["classifiers"]]
    assert tested == [found[1] for found in listed if found]
    assert PROJECT["requires-python"] == f">={tested[0]}"


@pytest.mark.soak
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    binaries = environment / ("Scripts" if os.name == "nt" else "bin")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(program: str, *words: str | Path) -> str:
        command = [binaries / program, *words]
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("pip", "install", "--quiet", wheel, "-c", ROOT / "constraints.txt")
    assert run("wcl", "--version").strip() == __version__
    quick = ["--epochs", "1", "--limit", "64", "--batch_size", "32"]
    run("wcl", "pretrain", "digits", "--out", "run", *quick)
    assert "top1" in run("wcl", "eval", "knn", "run", "--data", "digits")
    run("wcl", "report", "run")  # reads templates and assets
    run("wcl", "export", "run", "--to", "hub-folder")  # reads the template of the card
    assert "method: moco" in run("wcl", "recipes", "cifar10-cpu-moco")  # of a sub-folder
    assert run("wcl", "reproduce", "heads", "--list")  # reads figures.yaml
