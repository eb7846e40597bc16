"""Settings from recipes, files, words and Python, and the order in which they win."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from wcl.config import PretrainConfig, layering
from wcl.config.layering import recipe_file, recipe_names
from wcl.config.validation import check
from wcl.methods import method_settings
from wcl.system.errors import InputError


def settings(recipe: str, **changes: Any) -> PretrainConfig:
    return layering.settings(recipe, changes, method_settings)


def parse_settings(*words: str, resume: bool = False) -> PretrainConfig:
    return layering.parse_settings(list(words), method_settings, resume)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_parses_and_says_what_it_is_for(name: str) -> None:
    assert isinstance(parse_settings(name), PretrainConfig)
    assert recipe_file(name).read_text().startswith("# ")


def test_without_a_recipe_the_data_choose_it() -> None:
    assert parse_settings("--data", "digits") == parse_settings("digits")
    photos = parse_settings("--data=photos", "--out", "x")
    assert photos == parse_settings("folder", "--data", "photos", "--out", "x")


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 7\noptim: {lr: 0.5}\n")
    words = ["digits", "--config", str(tmp_path / "mine.yaml"), "--optim.lr", "0.25"]
    config = parse_settings(*words)
    assert config.batch_size == 256  # the recipe
    assert config.epochs == 7  # the file
    assert config.optim.lr == 0.25  # the word
    assert config.optim.name == "adamw"  # the recipe, inside a group that others touch


def test_python_and_words_mean_the_same() -> None:
    a = settings("digits", optim__lr=0.1, model={"head_out_dim": 8}, augment__scale=(0.5, 1))
    b = parse_settings(
        "digits", "--optim.lr=0.1", "--model.head_out_dim=8", "--augment.scale=[0.5,1]"
    )
    assert a == b
    assert a.augment.scale == (0.5, 1.0)


def test_text_that_looks_like_something_else_stays_text() -> None:
    for text in ("1", "true", "null", "[a]", "a: b", "#x", "~/photos"):
        assert settings("digits", data=text, out=text).data == text


def test_a_written_config_reads_back_equal(tmp_path: Path) -> None:
    from wcl.training.checkpoint import write_config

    config = settings("cifar10", out="runs/1e3", optim={"lr": 1e-7})
    write_config(config, tmp_path / "config.yaml")
    assert parse_settings("--config", str(tmp_path / "config.yaml")) == config


def test_a_run_whose_folder_looks_like_a_setting_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wcl.report.runs import read_run
    from wcl.training.checkpoint import write_config

    monkeypatch.chdir(tmp_path)
    config = settings("digits", out="-out", epochs=3)
    Path("-out").mkdir()
    write_config(config, Path("-out/config.yaml"))
    assert parse_settings("--out=-out", resume=True) == config
    assert read_run("./-out").config == config


def test_the_papers_settings_for_cifar() -> None:
    config = settings("cifar10")
    assert (config.model.backbone, config.model.stem, config.model.head_layers) == (
        "resnet50",
        "cifar",
        2,
    )
    assert dataclasses.astuple(config.optim) == ("lars", 0.25, "linear", 0.9, 1e-6, 10)
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
    from wcl.training.checkpoint import write_config

    run = tmp_path / "run"
    words = settings("digits", method=my_method, loss={"queue_size": 3}, out=run)
    assert dataclasses.asdict(words.loss) == {"queue_size": 3}
    (tmp_path / "mine.yaml").write_text(f"method: {my_method}\nloss: {{queue_size: 5}}\n")
    config = parse_settings("digits", f"--config={tmp_path}/mine.yaml", f"--out={run}")
    assert (config.method, config.loss.queue_size) == (my_method, 5)
    run.mkdir()
    write_config(config, run / "config.yaml")
    assert parse_settings(f"--out={run}", resume=True) == config
    assert settings("digits", method=my_method).loss.queue_size == 65536
    assert type(settings("digits").loss) is method_settings("wcl")


def test_a_setting_that_the_method_lacks_is_named_with_the_method(
    my_method: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("loss: {temperature: 0.2}\n")
    for words in ([f"--config={tmp_path}/mine.yaml"], ["--loss.temperature=0.2"]):
        with pytest.raises(InputError, match=rf"--loss\.temperature: .*{my_method}.*--help"):
            parse_settings("digits", *words, f"--method={my_method}")
    with pytest.raises(InputError, match=r"did you mean loss\.queue_size"):
        settings("digits", method=my_method, loss={"queue": 3})
    with pytest.raises(InputError, match=r"--loss\.queue_size: x is not a whole number"):
        settings("digits", method=my_method, loss={"queue_size": "x"})


def test_other_settings_are_checked_before_the_method_is_imported() -> None:
    def imports(name: str) -> type:
        raise AssertionError(f"{name} is imported")

    with pytest.raises(InputError, match="--epochs"):
        layering.parse_settings(["digits", "--epochs=x", "--loss.any=3"], imports)


def test_a_methods_settings_have_bounds(my_method: str) -> None:
    config = settings("digits", method=my_method, out="x", loss={"queue_size": 0})
    with pytest.raises(InputError, match=r"--loss\.queue_size: must be at least 1, not 0"):
        check(config)


def test_python_without_settings_of_the_method_has_its_defaults(tmp_path: Path) -> None:
    from wcl.training.checkpoint import must_match, read_config, write_config

    bare = PretrainConfig(data="digits", out="x")
    check(bare)
    write_config(settings("digits"), tmp_path / "config.yaml")
    must_match(settings("digits"), read_config(tmp_path / "config.yaml"), tmp_path)
