"""Settings from recipes, files, words and Python, and the order in which they win."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from wcl.config import PretrainConfig, layering
from wcl.config.layering import RENAMED, settings_parser
from wcl.config.recipes import recipe_file, recipe_names
from wcl.config.validation import check
from wcl.methods import method_settings
from wcl.system.errors import InputError


def settings(recipe: str, *files: Path, **changes: Any) -> PretrainConfig:
    return layering.settings(recipe, changes, method_settings, files=files)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_parses_and_says_what_it_is_for(name: str) -> None:
    assert isinstance(settings(name), PretrainConfig)
    assert recipe_file(name).read_text().startswith("# ")


def test_later_layers_win(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("epochs: 7\nlimit: 70\noptim: {lr: 0.5, momentum: 0.5}\n")
    second.write_text("limit: 80\n")
    config = settings("digits", first, second, optim__lr=0.25)
    assert config.batch_size == 256  # the recipe
    assert config.epochs == 7  # the first file
    assert config.limit == 80  # the second file
    assert config.optim.lr == 0.25  # the single setting
    assert config.optim.name == "adamw"  # the recipe, inside a group that others change
    assert config.optim.momentum == 0.5


def test_a_setting_in_a_group_is_written_in_three_ways() -> None:
    expected = settings("digits", optim={"lr": 0.1}, augment={"scale": (0.5, 1)})
    assert expected == settings("digits", optim__lr=0.1, augment__scale=[0.5, 1])
    assert expected == settings("digits", **{"optim.lr": "0.1", "augment.scale": "[0.5, 1]"})
    assert expected.augment.scale == (0.5, 1.0)


def test_text_that_looks_like_something_else_stays_text() -> None:
    for text in ("1", "true", "null", "[a]", "a: b", "#x", "~/photos"):
        assert settings("digits", data=text, out=text).data == text


def test_a_written_config_reads_back_equal(tmp_path: Path) -> None:
    from wcl.config.run_config import write_config

    config = settings("cifar10", out="runs/1e3", optim={"lr": 1e-7})
    write_config(config, tmp_path / "config.yaml")
    assert settings("", tmp_path / "config.yaml") == config


def test_a_run_whose_folder_looks_like_a_setting_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wcl.config.run_config import write_config
    from wcl.report.runs import read_run

    monkeypatch.chdir(tmp_path)
    config = settings("digits", out="-out", epochs=3)
    Path("-out").mkdir()
    write_config(config, Path("-out/config.yaml"))
    assert layering.settings("", {"out": "-out"}, method_settings, resume=True) == config
    assert read_run("./-out").config == config


def test_the_papers_settings_for_cifar() -> None:
    config = settings("cifar10")
    assert (config.model.backbone, config.model.stem, config.model.head_layers) == (
        "resnet50",
        "cifar",
        2,
    )
    assert dataclasses.astuple(config.optim)[:6] == ("lars", 0.25, "linear", 0.9, 1e-6, 10)
    assert config.augment.scale == (0.2, 1.0)
    assert config.augment.blur == 0
    assert config.loss.temperature == 0.1
    other = settings("cifar100", data="cifar10")
    same = yaml.safe_load(recipe_file("cifar10").read_text())["augment"]
    assert other.augment.hue == same["hue"]


def test_the_two_heads_and_their_weights_by_default() -> None:
    loss = settings("cifar10").loss
    assert (loss.nce, loss.swap, loss.heads, loss.positives) == (1.0, 0.5, "two", "mean")
    assert loss.key_gradient is True


MY_METHOD = """
from dataclasses import dataclass
from typing import Annotated
from wcl.config.bounds import at_least
from wcl.methods.simclr import SimCLR

@dataclass
class QueueSettings:
    \"\"\"A queue.\"\"\"

    queue_size: Annotated[int, at_least(1)] = 65536
    \"\"\"Embeddings kept.\"\"\"

class Queue(SimCLR):
    Settings = QueueSettings
"""


@pytest.fixture
def my_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The import path of a method with settings of its own."""
    name = f"my_method_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MY_METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    return f"{name}:Queue"


def test_the_settings_of_a_method_come_from_it(my_method: str, tmp_path: Path) -> None:
    from wcl.config.run_config import write_config

    run = tmp_path / "run"
    words = settings("digits", method=my_method, loss={"queue_size": 3}, out=run)
    assert dataclasses.asdict(words.loss) == {"queue_size": 3}
    (tmp_path / "mine.yaml").write_text(f"method: {my_method}\nloss: {{queue_size: 5}}\n")
    config = settings("digits", tmp_path / "mine.yaml", out=run)
    assert (config.method, config.loss.queue_size) == (my_method, 5)
    run.mkdir()
    write_config(config, run / "config.yaml")
    assert layering.settings("", {"out": run}, method_settings, resume=True) == config
    assert settings("digits", method=my_method).loss.queue_size == 65536
    assert type(settings("digits").loss) is method_settings("wcl")


@pytest.mark.parametrize("recipe", ["", "cifar10-cpu-byol"])
def test_a_run_is_not_resumed_with_another_method(recipe: str, tmp_path: Path) -> None:
    """The method is named, not a setting that the other one lacks."""
    from wcl.config.run_config import write_config

    write_config(settings("digits", method="moco", out=tmp_path), tmp_path / "config.yaml")
    with pytest.raises(InputError, match=r"config\.yaml: .*method=moco, not byol; resume"):
        layering.settings(recipe, {"out": tmp_path, "method": "byol"}, method_settings, resume=True)


@pytest.mark.parametrize(
    ("method", "name"),
    [("mochi", "mixtures"), ("mochi", "query_mixtures"), ("fncancel", "support")],
)
def test_settings_that_would_exhaust_memory_are_refused(method: str, name: str) -> None:
    config = settings("digits", method=method, loss={name: 10**9}, out="run")
    with pytest.raises(InputError, match=rf"--loss\.{name}: must be between 0 and"):
        check(config)


def test_a_setting_that_the_method_lacks_is_named_with_the_method(
    my_method: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("loss: {temperature: 0.2}\n")
    line = rf"loss\.temperature: .*{my_method} has no such setting.*--help"
    with pytest.raises(InputError, match=rf"mine\.yaml: {line}"):
        settings("digits", tmp_path / "mine.yaml", method=my_method)
    with pytest.raises(InputError, match=f"--{line}"):
        settings("digits", method=my_method, loss__temperature=0.2)
    with pytest.raises(InputError, match=r"did you mean loss\.queue_size"):
        settings("digits", method=my_method, loss={"queue": 3})
    with pytest.raises(InputError, match=r"--loss\.queue_size: x is not a whole number"):
        settings("digits", method=my_method, loss={"queue_size": "x"})


@pytest.mark.parametrize("changes", [{"epoch": 3}, {"epochs": "ten"}, {"method": 3}])
def test_other_settings_are_checked_before_the_method_is_imported(changes: dict[str, Any]) -> None:
    def imports(name: str) -> type:
        raise AssertionError(f"{name} is imported")

    with pytest.raises(InputError, match=f"--{next(iter(changes))}: "):
        layering.settings("digits", {**changes, "loss": {"any": 3}}, imports)


def test_a_methods_settings_have_bounds(my_method: str) -> None:
    config = settings("digits", method=my_method, out="x", loss={"queue_size": 0})
    with pytest.raises(InputError, match=r"--loss\.queue_size: must be at least 1, not 0"):
        check(config)


def test_python_without_settings_of_the_method_has_its_defaults(tmp_path: Path) -> None:
    from wcl.config.run_config import read_config, write_config
    from wcl.training.checkpoint import check_same_settings

    bare = PretrainConfig(data="digits", out="x")
    check(bare)
    write_config(settings("digits"), tmp_path / "config.yaml")
    check_same_settings(settings("digits"), read_config(tmp_path / "config.yaml"), tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("epoch: 3", r"epoch: no such setting \(did you mean epochs\?\)"),
        ("optim: {nam: sgd}", r"optim\.nam: no such setting \(did you mean optim\.name\?\)"),
        ("optim: 3", r"optim: a group of settings; set one of them, such as optim\.name"),
        ("epochs: ten", "epochs: ten is not a whole number"),
        ("data: 1", "data: 1 is not text, which YAML wants in quotes"),
        ("epochs:", "epochs: its value is missing"),
        ("augment: {scale: 1}", r"augment\.scale: 1 is not a list such as \[0\.2, 1\]"),
        ("precision: half", "precision: half is not one of auto, 32-true, bf16-mixed"),
        ("batch: 64", "batch is now batch_size; the file is from an older version of wcl"),
        ("optim: {rate: 0.1}", r"optim\.rate is now optim\.lr; .* older version"),
        ("optim: {lr: [3", "cannot be read"),
        ("data: 2026-31-12", "cannot be read"),
        ("", "holds no settings"),
        ("- a", "holds no settings"),
        ("1: 2", "holds no settings"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_both(
    text: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"^[^\n]*mine\.yaml: {line}[^\n]*$"):
        settings("digits", tmp_path / "mine.yaml")


def test_renamed_settings_are_settings() -> None:
    known = settings_parser(PretrainConfig, method_settings("wcl")).names
    assert set(RENAMED.values()) <= set(known)
    assert not set(RENAMED) & set(known)


def test_of_epochs_and_minutes_the_later_layer_counts(tmp_path: Path) -> None:
    timed, counted, both = (tmp_path / f"{name}.yaml" for name in ("timed", "counted", "both"))
    timed.write_text("minutes: 20\n")
    counted.write_text("epochs: 7\n")
    both.write_text("epochs: 9\nminutes: 30\n")  # as a run has them until its first epoch has ended
    assert settings("digits").minutes == 0
    assert settings("digits", timed).minutes == 20  # over the epochs of the recipe
    assert settings("digits", timed, counted).minutes == 0
    assert settings("digits", counted, timed).minutes == 20
    assert settings("digits", counted, both).minutes == 30
    assert settings("digits", both, epochs=3).minutes == 0
    assert settings("digits", both, epochs=3).epochs == 3
    assert settings("digits", counted, minutes=0.5).minutes == 0.5


def test_epochs_and_minutes_at_once_are_refused() -> None:
    with pytest.raises(InputError, match=r"minutes.*epochs"):
        settings("digits", epochs=3, minutes=20)
    assert settings("digits", epochs=3, minutes=0).epochs == 3


def test_a_time_needs_a_warmup_of_crops_that_fits_any_length() -> None:
    crops: dict[str, Any] = {"crops__count": 2, "crops__size": 16, "crops__warmup": 2.0}
    crops |= {"minutes": 20, "out": "x"}
    with pytest.raises(InputError, match=r"crops.warmup.*fraction"):
        check(settings("digits", **crops))
    check(settings("digits", **{**crops, "crops__warmup": 0.25}))
    check(settings("digits", crops__neighbors=False, **crops))


@pytest.mark.parametrize("minutes", [-1, 1e308])
def test_impossible_times_are_refused(minutes: float) -> None:
    with pytest.raises(InputError, match="minutes"):
        check(settings("digits", minutes=minutes, out="x"))
