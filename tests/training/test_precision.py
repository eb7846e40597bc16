"""The precision that `auto` stands for, and runs in it."""

from pathlib import Path

import pytest
import torch

from runs import metrics, tiny_run
from wcl.config import ModelConfig, PretrainConfig
from wcl.config.run_config import read_config
from wcl.training.precision import with_precision

_INSTRUCTIONS = {
    "AMX": "_is_amx_tile_supported",
    "AVX512-BF16": "_is_avx512_bf16_supported",
}


@pytest.fixture(params=["AMX", "AVX512-BF16", ""])
def has_bfloat16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A CPU with or without instructions for products of bfloat16 matrices."""
    _set_instructions(monkeypatch, request.param)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return bool(request.param)


def _set_instructions(monkeypatch: pytest.MonkeyPatch, present: str) -> None:
    for name, function in _INSTRUCTIONS.items():
        monkeypatch.setattr(torch.cpu, function, lambda name=name: name == present)


@pytest.mark.parametrize(
    "backbone", ["conv_tiny", "resnet_small", "resnet18", "vit_tiny_patch16_224"]
)
def test_auto_is_bfloat16_on_cpus_that_multiply_it(has_bfloat16: bool, backbone: str) -> None:
    config = PretrainConfig(model=ModelConfig(backbone=backbone), precision="auto", device="cpu")
    chosen = with_precision(config).precision
    assert chosen == ("bf16-mixed" if has_bfloat16 else "32-true")


def test_auto_is_single_precision_for_depthwise_convolutions(has_bfloat16: bool) -> None:
    model = ModelConfig(backbone="tf_efficientnet_lite0")
    config = PretrainConfig(model=model, precision="auto", device="cpu")
    assert with_precision(config).precision == "32-true"


def test_a_precision_that_is_given_stays(has_bfloat16: bool) -> None:
    assert with_precision(PretrainConfig(precision="64-true")).precision == "64-true"


def test_a_run_records_what_auto_was_and_continues_with_it(
    has_bfloat16: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tiny_run(tmp_path / "run", epochs=1, precision="auto")
    assert ("in bfloat16" in capsys.readouterr().err) == has_bfloat16
    assert read_config(run / "config.yaml")["precision"] == (
        "bf16-mixed" if has_bfloat16 else "32-true"
    )
    _set_instructions(monkeypatch, "" if has_bfloat16 else "AMX")
    tiny_run(run, epochs=2, resume=True)
    assert metrics(run)[-1]["epoch"] == 2
