"""The command line: help, results, and one clear line for every mistake."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from images import flat_folder, photo_folder
from runs import tiny_run
from wcl.cli import COMMANDS, run_command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message about a wrong command line: one line, exit status 2."""
    assert run_command(words) == 2
    message = capsys.readouterr().err
    assert message.startswith("wcl: ")
    assert message.count("\n") == 1, message
    return message


def test_help_answers_without_importing_torch() -> None:
    words = [["--help"], *([name, "--help"] for name in COMMANDS), ["eval", "knn", "--help"]]
    code = (
        "import sys, wcl.cli\n"
        f"assert all(wcl.cli.run_command(words) == 0 for words in {words})\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in COMMANDS)


def test_help_shows_the_settings_of_the_method(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for method in ("simclr", "wcl"):
        assert run_command(["pretrain", "--method", method, "--help"]) == 0
        shown[method] = capsys.readouterr().out
    assert "--loss.cswap" in shown["wcl"] and "--loss.cswap" not in shown["simclr"]
    assert all("--loss.temperature" in text for text in shown.values())


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        ("pretrain digits", "--optim.lr X", "0.002"),
        ("pretrain digits", "--augment.zoom VALUE", "[0.6, 1.1]"),
        ("pretrain --data ~/photos", "--crops.neighbors [{true,false}]", "false"),  # of folder
        ("views digits cifar10-cpu-moco", "--method VALUE", "moco"),
        ("pretrain cifar10-cpu-moco --method simclr", "--loss.temperature X", "0.1"),
        ("pretrain", "--optim.lr X", "0.25"),
    ],
)
def test_help_shows_the_values_of_the_recipe(
    words: str, setting: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*words.split(), "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    about = text.partition(f"{setting} ")[2].partition(" --")[0]
    assert f"(default: {value})" in about


def test_help_shows_only_what_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["pretrain"], ["eval", "knn"], ["search"]):
        assert run_command([*words, "--help"]) == 0
        text = capsys.readouterr().out
        for artifact in ("+ VALUE", "{}", "default: []", "default: (", "True", "None"):
            assert artifact not in text


def test_what_is_not_there_is_reported_without_importing_torch(run: Path) -> None:
    missing = [
        "eval knn nowhere",
        "eval all nowhere",
        "export nowhere --to timm",
        "pretrain --data nowhere --out x",
        f"eval knn {run} --data nowhere",
        f"eval knn {run} --test_data nowhere",
        f"embed {run} --data nowhere --out x.npy",
        f"duplicates {run} --data nowhere",
        f"cluster {run} --data nowhere",
        f"search {run} --data nowhere --query x.jpg",
        "views nowhere",
        "data nowhere",
        f"pretrain digits --out {run}",
    ]
    code = (
        "import sys, wcl.cli\n"
        f"assert all(wcl.cli.run_command(words.split()) == 2 for words in {missing})\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, last = done.stderr.splitlines()
    assert len(lines) == len(missing) - 1
    assert all(line.startswith("wcl: nowhere: no ") for line in lines)
    assert last.startswith(f"wcl: {run}: holds a run; continue it with --resume")


def test_a_small_network_of_our_own_is_trained_and_used_without_heavy_packages(
    tmp_path: Path,
) -> None:
    heavy = {"timm", "torchvision", "torchmetrics", "torch._dynamo", "torch.distributed.fsdp"}
    heavy |= {"sympy", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "faiss", "jinja2"}
    code = (
        "import sys, runs, wcl, pathlib, PIL.Image\n"
        "for optimizer in ('sgd', 'adamw'):\n"  # LARS is timm's
        "    run = runs.tiny_run(pathlib.Path(optimizer), epochs=1, optim={'name': optimizer})\n"
        "wcl.evaluate(run)\n"
        "wcl.evaluate(run, 'linear', epochs=1)\n"
        "wcl.embed(run, data='digits', out='features.npy')\n"
        "pathlib.Path('images').mkdir()\n"
        "for name in ('images/one.png', 'query.png'):\n"
        "    PIL.Image.new('L', (32, 32)).save(name)\n"
        "wcl.search(run, data='images', query='query.png')\n"
        f"assert not {heavy} & {{*sys.modules}}, {heavy} & {{*sys.modules}}"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
    )


@pytest.mark.parametrize(
    "words",
    [*([name] for name in COMMANDS), ["eval", "knn"], ["eval", "linear"]],
)
def test_every_command_has_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*words, "--help"]) == 0
    assert "usage: wcl" in capsys.readouterr().out


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wcl", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.strip() == "0.1.0"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pretrian"], "did you mean pretrain"),
        (["eval"], "missing: protocol"),
        (["eval", "lineer", "x"], "did you mean linear"),
        (["eval", "knn"], "missing: run; usage: wcl eval knn RUN"),
        (["eval", "run", "knn"], "run: no such protocol; there are knn"),
        (["reproduce", "--list"], "missing: table, one of"),
        (["eval", "knn", "run", "digits"], "digits: unexpected; usage: wcl eval knn RUN [--data"),
        (["eval", "knn", "run", "--data", "x", "--k", "10", "20"], "20: unexpected; usage"),
        (["export", "run", "onnx"], "onnx: unexpected; usage: wcl export RUN --to FORMAT"),
        (["export", "run"], "missing: --to; usage: wcl export RUN --to FORMAT"),
        (["data", "digits", "cifar10"], "cifar10: unexpected; usage: wcl data SRC"),
        (["views", "folder", "/"], "/: a path, where a recipe is expected"),
        (["views", "digits", "--crops", "4"], "--crops: a group of settings; set one of them"),
        (["pretrain", "/", "--out", "x"], "/: a path, where a recipe is expected"),
        (["pretrain", "folder", "/photos"], "/photos: unexpected; usage: wcl pretrain"),
        (["pretrain", "digits", "--model", "resnet18"], "such as --model.backbone"),
        (["pretrain", "digits", "epochs=3"], "epochs=3: unexpected; usage: wcl pretrain"),
        (["pretrain", "digits", "--out"], "--out: its value is missing"),
        (["data"], "missing: source"),
        (["recipes", "digit"], "did you mean digits"),
        (["recipes", "digits", "folder"], "folder: unexpected; usage: wcl recipes"),
        (["pretrain", "cifar-10", "--out", "x"], "no such recipe (did you mean cifar10"),
        (["pretrain", "--out", "x"], "--data"),
        (["pretrain", "digits"], "--out"),
        (["pretrain", "digits", "--epoch", "3"], "did you mean epochs"),
        (["pretrain", "digits", "--optim.nam", "3"], "did you mean optim.name"),
        (["pretrain", "digits", "--loss.tau", "1"], "--loss.tau: the method wcl has no such"),
        (["pretrain", "digits", "--epochs", "ten"], "--epochs: ten is not a whole number"),
        (["pretrain", "digits", "--method", "simclrr"], "did you mean simclr"),
        (["pretrain", "digits", "--epochs", "0", "--out", "x"], "--epochs: must be at least 1"),
        (
            ["pretrain", "digits", "--batch_size", "1", "--out", "x"],
            "--batch_size: must be between 2 and",
        ),
        (
            ["pretrain", "digits", "--augment.scale", "[1, 0.2]", "--out", "x"],
            "--augment.scale: must be",
        ),
        (
            ["pretrain", "digits", "--augment.flip", "1.5", "--out", "x"],
            "--augment.flip: must be between 0 and 1",
        ),
        (
            ["pretrain", "digits", "--augment.mean", "[]", "--out", "x"],
            "augment.mean: give one number for each",
        ),
        (["pretrain", "digits", "--log.every", "0", "--out", "x"], "--log.every: must be"),
        (["pretrain", "digits", "--precision", "16-mixed", "--out", "x"], "needs a CUDA GPU"),
        (["pretrain", "digits", "--model.backbone", "resnet18.x", "--out", "x"], "resnet18.x"),
        (
            ["pretrain", "digits", "--image_size", "8", "--out", "x"],
            "--image_size: conv_tiny cannot take",
        ),
        (["pretrain", "digits", "--optim.lr", ".nan", "--out", "x"], "--optim.lr: must be a f"),
        (["pretrain", "digits", "--augment.zoom", "[1, .inf]", "--out", "x"], "must be a finite"),
        (["pretrain", "digits", "--seed", "9" * 30, "--out", "x"], "--seed: must be between 0 and"),
        (
            ["pretrain", "digits", "--image_size", "2000000", "--out", "x"],
            "--image_size: must be between",
        ),
        (["pretrain", "digits", "--optim.lr", "1e39", "--out", "x"], "--optim.lr: must be at"),
        (["views", "digits", "--augment.scale", "[2, 3]"], "--augment.scale: must be"),
        (["views", "digits", "--images", "0"], "--images: must be at least 1"),
        (["views", "digits", "--out", "nowhere/x.png"], "a folder that exists"),
        (["views", "digits", "--out", "x.gif"], "must be a .png file"),
        (["pretrain", "--resume"], "--out: name the folder"),
        (["pretrain", "digits", "--batch_size", "5000", "--out", "x"], "fewer than one batch"),
        (["pretrain", "digits", "--model.backbone", "resnet19", "--out", "x"], "did you mean"),
        (
            ["pretrain", "digits", "--model.head_layers", "5", "--out", "x"],
            "--model.head_layers: must be between 2 and 3",
        ),
        (["pretrain", "digits", "--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["pretrain", "digits", "--data", "nowhere", "--out", "x"], "no such data"),
        (["pretrain", "digits", "--device", "cuda:99", "--out", "x"], "--device"),
        (["pretrain", "digits", "--resume", "--out", "x"], "no run to resume"),
        (["eval", "knn", "nowhere", "--data", "digits"], "no such run"),
        (["views", "digits", "digit"], "did you mean digits"),
        (["pretrain", "digits", "--classes", "11", "--out", "x"], "has only 10 classes"),
        (["pretrain", "digits", "--classes", "-1", "--out", "x"], "--classes: must be at least 0"),
        (["pretrain", "digits", "--loss.cnce", "-1", "--out", "x"], "--loss.cnce: must be at"),
        (["pretrain", "digits", "--loss.cswap", "-0.5", "--out", "x"], "--loss.cswap: must be at"),
        (["pretrain", "digits", "--loss.nce", "-1", "--out", "x"], "--loss.nce: must be at least"),
        (["pretrain", "digits", "--loss.swap", "-1", "--out", "x"], "--loss.swap: must be at"),
        (["pretrain", "digits", "--loss.cswap", ".nan", "--out", "x"], "must be a finite number"),
        (["pretrain", "digits", "--crops.count", "-1", "--out", "x"], "--crops.count: must be at"),
        (["pretrain", "digits", "--crops.counts", "2"], "did you mean crops.count"),
    ],
)
def test_a_mistake_is_one_line_that_names_it_and_leaves_nothing(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refused(words, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--limit", "128", "--crops.count", "128"], "--crops.count: 128 images have at most 127"),
        (
            ["--limit", "128", "--crops.count", "500", "--crops.bank", "disk"],
            "--crops.count: 128 images have at most 127",
        ),
        (["--crops.size", "33"], "--crops.size: crops of 33 pixels are larger"),
        (["--crops.size", "-1"], "--crops.size: must be at least 0"),
        (["--crops.size", "8"], "--crops.size: conv_tiny cannot take images of 8×8"),
        (["--crops.warmup", "5"], "--crops.warmup: 5 epochs are more than the 4 of the run"),
        (["--crops.warmup", "-0.5"], "--crops.warmup: must be at least 0"),
        (["--crops.warmup", ".inf"], "--crops.warmup: must be a finite number"),
        (["--crops.scale", "[0.5, 0.1]"], "--crops.scale: must be [low, high]"),
        (["--crops.scale", "[0, 0.5]"], "--crops.scale: must be [low, high]"),
        (["--crops.scale", "[0.5, 1.5]"], "--crops.scale: must be [low, high]"),
        (["--crops.scale", "[.nan, 0.5]"], "--crops.scale: must be a finite number"),
        (["--crops.scale", "0.3"], "--crops.scale: 0.3 is not"),
        (["--crops.scale", "[0.1, 0.2, 0.3]"], "--crops.scale: [0.1, 0.2, 0.3] is not"),
        (["--crops.cache", "-1"], "--crops.cache: must be at least 0"),
        (["--crops.bank", "tape"], "--crops.bank: tape is not one of memory, disk"),
        (["--crops.search", "near"], "--crops.search: near is not one of auto, exact"),
        (
            ["--loss.nce", "0", "--loss.swap", "0", "--loss.cnce", "0", "--loss.cswap", "0"],
            "all weights are 0",
        ),
        (
            ["--method", "simclr", "--loss.nce", "0"],
            "--loss.nce: the method simclr has no such setting",
        ),
    ],
)
def test_a_mistake_about_crops_is_one_line_that_names_it_and_leaves_nothing(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    right = ["--crops.count", "2", "--crops.size", "16", "--epochs", "4", "--batch_size", "32"]
    assert expected in refused(["pretrain", "digits", *right, *words, "--out", "x"], capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "pretrain digits --out NAME",
        "pretrain --data NAME --out x",
        "pretrain digits --resume --out NAME",
        "pretrain --config NAME --data digits --out x",
        "eval all RUN --data NAME",
        "eval knn NAME --data digits",
        "eval knn RUN --data digits --test_data NAME",
        "eval knn RUN --data digits --confusion NAME.csv",
        "eval finetune RUN --data digits --labels NAME",
        "eval project RUN --data digits --against NAME",
        "embed RUN --data digits --out NAME.parquet",
        "export RUN --to safetensors --out NAME.safetensors",
        "duplicates RUN --data NAME",
        "report NAME",
        "report RUN --data NAME --out x.html",
        "report RUN --out NAME.html",
        "watch NAME",
        "data NAME",
        "views NAME",
        "views digits --out NAME.png",
        "demo --out NAME",
        "reproduce heads --out NAME",
    ],
)
def test_a_name_that_is_not_text_is_refused_before_any_work(
    words: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"RUN": str(run), "NAME": os.fsdecode(b"caf\xe9")}
    typed = [re.sub("RUN|NAME", lambda found: places[found[0]], word) for word in words.split()]
    message = refused(typed, capsys)
    assert "caf\\udce9" in message
    assert "not UTF-8 text; rename it, or give a link" in message
    assert list(tmp_path.iterdir()) == []


def test_classes_of_unlabeled_data_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = flat_folder(tmp_path / "flat"), tmp_path / "run"
    words = ["pretrain", "folder", "--data", str(data), "--classes", "2", "--out", str(out)]
    assert f"--classes: {data} has no labels" in refused(words, capsys)
    assert not out.exists()


def test_evaluation_prints_exactly_one_json_object(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["eval", "knn", str(run), "--data", "digits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"protocol", "top1", "n_train", "n_test", "seconds"} <= found.keys()


def test_evaluation_prints_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "linear", str(run), "--data", "digits", "--epochs", "1"]
    assert run_command(words) == 0
    assert "top1" in capsys.readouterr().out


def test_a_file_that_is_no_encoder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "encoder.safetensors").write_bytes(b"nothing of the kind")
    assert "not a safetensors file" in refused(
        ["eval", "knn", str(tmp_path), "--data", "digits"], capsys
    )


def test_labels_asked_of_unlabeled_data_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = flat_folder(tmp_path / "flat")
    assert "has no labels" in refused(["eval", "knn", str(run), "--data", str(data)], capsys)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "0"),
        ("--temperature", ".nan"),
        ("--k", "-1"),
        ("--lr", "-1"),
        ("--batch_size", "0"),
    ],
)
def test_evaluations_refuse_numbers_that_cannot_be(
    option: str, value: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = "knn" if option in ("--temperature", "--k") else "linear"
    words = ["eval", protocol, str(run), "--data", "digits", option, value]
    assert option in refused(words, capsys)


@pytest.mark.parametrize("num_workers", ["-2", "1025"])
@pytest.mark.parametrize(
    "command",
    ["eval knn RUN", "eval all RUN", "embed RUN", "search RUN", "duplicates RUN", "report RUN"],
)
def test_every_command_refuses_workers_that_cannot_be(
    command: str,
    num_workers: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (9, 9)).save("query.png")
    words = [str(run) if word == "RUN" else word for word in command.split()]
    more = {"embed": ["--out", "x.csv"], "search": ["--query", "query.png"]}
    words += ["--data", "digits", f"--num_workers={num_workers}", *more.get(words[0], [])]
    printed = refused(words, capsys)
    assert printed == f"wcl: --num_workers: must be between -1 and 1024, not {num_workers}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["query.png"]


def test_a_reader_that_has_seen_enough_and_a_plain_terminal_are_no_errors() -> None:
    command = f"{sys.executable} -m wcl recipes | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    words = [sys.executable, "-m", "wcl", "pretrain", "--help"]
    assert subprocess.run(words, env=plain, capture_output=True).returncode == 0


def test_class_names_are_not_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = photo_folder(tmp_path / "data", ("[red]", "[bold]"), 2)
    assert run_command(["data", str(root)]) == 0
    assert "[bold], [red]" in capsys.readouterr().out


def test_data_describes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = photo_folder(tmp_path / "data")
    (root / "cat" / "000.jpg").write_text("no")
    assert run_command(["data", str(root)]) == 0
    printed = capsys.readouterr().out
    for word in ("24", "cat, dog", "000.jpg: not an image"):
        assert word in printed


def test_data_describes_both_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    photo_folder(root / "train", each=12)
    photo_folder(root / "test", ("cat", "dog", "eel"), 5)
    (root / "test" / "eel" / "000.jpg").write_text("no")
    assert run_command(["data", str(root)]) == 0
    printed = capsys.readouterr().out
    for words in (["training", "test"], ["images", "24", "15"], ["unreadable", "0", "1"]):
        assert any(all(word in line for word in words) for line in printed.splitlines())
    assert "classes: cat, dog, eel\n" in printed
    assert "eel/000.jpg: not an image" in printed


def test_views_are_written_once_and_never_over_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = photo_folder(tmp_path / "data"), tmp_path / "sheet.png"
    plain = ["--images", "3", "--crops.count", "0"]
    assert run_command(["views", str(root), "--out", str(out), *plain]) == 0
    assert Image.open(out).format == "PNG"
    written = capsys.readouterr().out
    assert written.startswith(f"wrote {out}: ") and "8 views" in written
    crops = ["--crops.count", "1", "--crops.size", "32", "--images", "1", "--views", "2"]
    assert run_command(["views", str(root), "--out", str(tmp_path / "crops.png"), *crops]) == 0
    written = capsys.readouterr().out
    assert "2 views" in written and "1 small crop" in written
    assert "exists already" in refused(["views", str(root), "--out", str(out)], capsys)


def test_recipes_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["recipes"]) == 0
    assert "cifar10-cpu" in capsys.readouterr().out
    assert run_command(["recipes", "digits"]) == 0
    assert "backbone: conv_tiny" in capsys.readouterr().out
