"""Every command and every Python block of the documents runs, on data made for it."""

import json
import re
import runpy
import shlex
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch
import yaml

import wcl
from benchmarks.__main__ import BENCHMARKS
from images import photo_folder, picture
from runs import metrics
from wcl.cli import run_command
from wcl.config import PretrainConfig, evaluations, flat
from wcl.config import commands as commands_module
from wcl.methods import METHODS, method_settings
from wcl.paper.pairs import pair_quality
from weight_files import weights_file

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
# What a page may rely on: its readers have been through the tutorial, docs/photos.md.
TUTORIAL_RUNS = {"runs/a", "runs/small"}
# Settings that make a command take seconds instead of hours; the given ones stay as they are.
QUICK = {
    "pretrain digits --minutes": (
        "--minutes 0.05 --limit 64 --batch_size 32 --log.tensorboard false"
    ),
    "pretrain digits": "--epochs 1 --limit 64 --batch_size 32 --log.tensorboard false",
    "pretrain folder --model.backbone": (
        "--epochs 1 --batch_size 8 --image_size 32 --model.head_hidden_dim 16 "
        "--crops.size 16 --log.tensorboard false --num_workers 0"
    ),
    "pretrain adapt": "--epochs 1 --batch_size 8 --log.tensorboard false --num_workers 0",
    "pretrain": (
        "--epochs 1 --batch_size 8 --image_size 32 --model.backbone resnet18 "
        "--model.head_hidden_dim 16 "
        "--crops.size 16 --log.tensorboard false --num_workers 0"
    ),
    "eval linear": "--epochs 1 --num_workers 0",
    "eval finetune": "--epochs 1 --num_workers 0",
    "eval": "--num_workers 0",
}


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def commands(document: str) -> list[list[list[str]]]:
    """Return the words of each command, block by block."""
    split = [
        [shlex.split(line, comments=True) for line in block.splitlines()]
        for block in blocks(document, "bash")
    ]
    return [[words for words in block if words] for block in split]


WITH_COMMANDS = [document for document in DOCUMENTS if commands(document)]
WITH_PYTHON = [document for document in DOCUMENTS if blocks(document, "python")]


def made_quick(words: list[str]) -> list[str]:
    for start, extra in QUICK.items():
        if " ".join(words).startswith(start) and "--resume" not in words:
            pieces = ["--micro_batch_size", "4"] if "--micro_batch_size" in words else []
            return [*words, *extra.split(), *pieces]
    return words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the photos and the runs that the documents mention."""
    place = tmp_path_factory.mktemp("reader")
    photo_folder(place / "photos", each=12)
    picture(0).save(place / "query.jpg")
    weights_file(place / "weights.safetensors", "tf_efficientnet_lite0")
    for run in TUTORIAL_RUNS:
        options = ["--data", str(place / "photos"), "--out", str(place / run)]
        assert run_command(made_quick(["pretrain", "folder", *options])) == 0
    return place


def reader_folder(place: Path, document: str, made: set[str]) -> Path:
    """Return the folder of a document's reader, who has done the tutorial first.

    Args:
        made: the runs that the document itself makes.
    """
    here = place / document.replace("/", "-")
    here.mkdir()
    for name in ("photos", "query.jpg", "weights.safetensors"):
        (here / name).symlink_to(place / name)
    for run in TUTORIAL_RUNS - made:
        shutil.copytree(place / run, here / run)
    shutil.copytree(ROOT / "examples", here / "examples")
    return here


def test_the_quick_settings_belong_to_commands_of_the_documents() -> None:
    lines = [
        " ".join(words[1:])
        for document in WITH_COMMANDS
        for block in commands(document)
        for words in block
    ]
    for start in QUICK:
        assert any(line.startswith(start) for line in lines), start


@pytest.mark.parametrize("document", WITH_COMMANDS)
def test_the_commands_of_a_document_work_in_their_order(
    document: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block starts in the same folder."""
    monkeypatch.setenv("HOME", str(place))
    made = re.findall(r"^wcl pretrain .*--out (\S+)", (ROOT / document).read_text(), re.M)
    here = reader_folder(place, document, set(made))
    for block in commands(document):
        monkeypatch.chdir(here)
        for name, *words in block:
            if name == "cd":
                monkeypatch.chdir(words[0])
            elif name == "make":
                targets = (ROOT / "Makefile").read_text()
                assert re.search(rf"^{words[0]}:", targets, re.M), words
            elif [name, *words[:2]] == ["python", "-m", "benchmarks"]:
                assert words[2] in BENCHMARKS, words  # it takes minutes: only that it exists
            elif name != "source":
                assert name == "wcl", f"a command that this test cannot run: {name}"
                run(words)


def run(words: list[str]) -> None:
    if words[0] == "watch":  # which serves until it is stopped
        words = [*words, "--help"]
    words = [str(Path(word).expanduser()) if word.startswith("~") else word for word in words]
    assert run_command(made_quick(words)) == 0, words


@pytest.mark.parametrize("document", WITH_PYTHON)
def test_the_python_of_a_document_works(
    document: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the photos and a run in the places that the document names."""
    monkeypatch.chdir(reader_folder(place, f"{document}-python", set()))
    pretrain = wcl.pretrain
    quick = {"batch_size": 8, "image_size": 32, "num_workers": 0, "log__tensorboard": False}

    def quickly(recipe: str, **changes: Any) -> Path:
        return pretrain(recipe, **{**changes, **quick, "epochs": 1})

    monkeypatch.setattr(wcl, "pretrain", quickly, raising=False)
    for block in blocks(document, "python"):
        exec(compile(block, document, "exec"), {})


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the two things that Jupyter adds to Python: files that cells write, and commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    plt.switch_backend("agg")  # a window would wait to be closed
    cells = json.loads(notebook.read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            first, _, rest = text.partition("\n")
            if first.startswith("%%writefile "):
                Path(first.split()[1]).write_text(rest)
            elif first.startswith("!wcl "):
                assert run_command(shlex.split(first)[1:]) == 0, first
            else:
                exec(compile(text, notebook.name, "exec"), names)
                plt.close("all")
            assert cell["outputs"] == []  # they would grow the repository with every change


def test_the_example_of_an_own_loop_learns() -> None:
    example = ROOT / "examples" / "own_loop.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 5
    assert losses[-1] < 0.7 * losses[0]


def test_the_example_of_purity_by_hand_makes_groups_of_the_chosen_purity(tmp_path: Path) -> None:
    example = ROOT / "examples" / "purity_by_hand.py"
    module = runpy.run_path(str(example))
    torch.manual_seed(0)
    labels, classes = wcl.weak_labels(torch.randn(256, 8)), torch.arange(256) % 10
    by_class = module["filled_by_class"](labels, classes)
    for groups in (by_class, module["moved"](labels, 0.5)):
        assert groups.bincount(minlength=256).equal(labels.bincount(minlength=256))
    # Filled one after another, only the groups where a class ends are of two.
    members = [classes[by_class == group].unique() for group in by_class.unique()]
    assert sum(len(found) - 1 for found in members) <= 9
    unmoved = (module["moved"](labels, 0.25) == labels).double().mean()
    assert 0.75 <= unmoved < 0.8

    words = ["smoke", "--groups", "classes", "--kept", "1", "0", "--seeds", "0", "1"]
    command = [sys.executable, str(example), *words, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    worth: dict[float, list[float]] = {1.0: [], 0.0: []}
    for run in (tmp_path / "out" / "runs").glob("*-ByHand-*"):
        kept = yaml.safe_load((run / "config.yaml").read_text())["loss"]["kept"]
        worth[kept].append(100 * pair_quality(run)["pair_precision"])
    # Two runs of different images: with the classes of others, pairs would be as at random.
    chosen, random = (statistics.fmean(values) for values in worth.values())
    assert chosen > 25 > 15 > random
    assert f"{chosen:.1f}" in done.stdout and f"{random:.1f}" in done.stdout


def test_the_example_of_a_method_of_your_own_is_the_same_on_two_processes(tmp_path: Path) -> None:
    words = "pretrain digits --method my_method:AlignUniform --epochs 2 --limit 64 --batch_size 32"
    words += " --precision 64-true --log.tensorboard false"
    for devices in ("1", "2"):
        options = ["--devices", devices, "--out", str(tmp_path / devices)]
        command = [sys.executable, "-m", "wcl", *words.split(), *options]
        subprocess.run(command, cwd=ROOT / "examples", check=True)
    for one, two in zip(metrics(tmp_path / "1"), metrics(tmp_path / "2"), strict=True):
        assert one["loss"] == pytest.approx(one["align"] + one["uniform"], rel=1e-5)
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)


def test_links_between_documents_lead_somewhere() -> None:
    for document in ROOT.glob("**/*.md"):
        if ".venv" in document.parts or "runs" in document.parts:
            continue
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document}: {target}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """A link, an anchor, a page or a name in the reference that does not exist is a warning."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = {path.parent.name for path in tmp_path.glob("*/index.html")}
    assert pages >= {Path(document).stem for document in DOCUMENTS} - {"README", "index"}
    assert "nt_xent" in (tmp_path / "api/losses/index.html").read_text()


def test_the_messages_that_the_faq_explains_exist() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s+f?"', "", source)  # literals over several lines
    symptoms = re.findall(r"^\*\*(.*?)\*\*", (ROOT / "docs/faq.md").read_text(), re.S | re.M)
    code = re.findall(r"`([^`]+)`", " ".join(" ".join(symptoms).split()))
    messages = [text for text in code if " " in text]
    assert len(messages) > 10
    for message in messages:
        assert all(part.strip() in joined for part in message.split("…")), message


def known_settings() -> set[str]:
    names = {"config", "from", "help", "json", "list", "loss", "query", "resume"}
    for method in METHODS:
        names |= flat(asdict(PretrainConfig(loss=method_settings(method)()))).keys()
    for module in (commands_module, evaluations):
        for kind in vars(module).values():
            if isinstance(kind, type) and is_dataclass(kind):
                names |= {field.name for field in fields(kind)}
    return names


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_settings_and_files_that_a_document_names_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    code = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    lines = "".join(blocks(document, r"\w*")).splitlines()
    known = known_settings()
    for words in [*code, *lines]:
        options = words if words.startswith("--") else words.partition("wcl ")[2]
        for name in re.findall(r"(?<!\S)--([a-z_-]+(?:\.[a-z_0-9]+)?)", options):
            assert name in known | {"max-restarts"}, words  # which is torchrun's
        if re.fullmatch(r"(augment|crops|log|loss|model|optim)\.[a-z_]+( \w+)?", words):
            assert words.split()[0] in known, words
        for path in re.findall(r"(?<![\w/])(?:examples|src|tests)/[\w/.]+", words):
            assert (ROOT / path).exists(), words
