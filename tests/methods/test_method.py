"""What all methods share: found by name, resumed exactly, the same on two processes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import wcl
from images import photo_folder
from runs import TINY, assert_same_run, checkpoint, metrics, photo_run, stopped_after, tiny_run
from wcl.methods import METHODS, find_method
from wcl.methods.simclr import SimCLR
from wcl.system.errors import InputError

# Beyond SimCLR and WCL, whose runs are tested in tests/training.
SETTINGS: dict[str, dict[str, Any]] = {
    "meanshift": {"loss": {"neighbors": 3}},
    "moco": {"loss": {"queue_size": 48}},
    "mochi": {"loss": {"hardest": 12, "mixtures": 9, "query_mixtures": 5, "warmup_epochs": 1}},
    "simclrv2": {"loss": {"queue_size": 48}},
    "nnclr": {},
    "softwcl": {
        "loss": {"queue_size": 48},
        "crops": {"count": 2, "size": 16, "scale": [0.3, 0.6], "warmup": 1, "features": "plain"},
    },
    "pcl": {"loss": {"warmup_epochs": 1, "clusters": 12}},
    "instdisc": {"loss": {"negatives": 40}},
    "byol": {},
    "simsiam": {},
    "supcon": {},
    "supervised": {},
    "fncancel": {"loss": {"support": 2, "top_k": 3, "threshold": 0.3}},
    "adpclr": {"loss": {"k": 3, "warmup": 0.6}},
    "swav": {
        "loss": {"prototypes": 12, "freeze_epochs": 1, "queue_size": 48, "queue_start": 1},
        "crops": {"count": 2, "size": 16, "scale": [0.3, 0.6], "warmup": 1},
    },
}


@pytest.mark.parametrize("micro_batch_size", [0, 16])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_stopped_run_resumes_exactly(
    name: str, micro_batch_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"method": name, "micro_batch_size": micro_batch_size, **SETTINGS[name]}
    whole = tiny_run(tmp_path / "whole", **settings)
    with stopped_after(6, monkeypatch):
        tiny_run(tmp_path / "parts", **settings)
    assert checkpoint(tmp_path / "parts")["step"] == 6
    tiny_run(tmp_path / "parts", resume=True, **settings)
    assert_same_run(whole, tmp_path / "parts")
    first, second = (checkpoint(run)["method"] for run in (whole, tmp_path / "parts"))
    assert all(torch.equal(first[key], second[key]) for key in first.keys() | second.keys())
    assert wcl.load(whole).embed(torch.zeros(2, 1, 32, 32, dtype=torch.uint8)).isfinite().all()


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_make_the_run_of_one(name: str, tmp_path: Path) -> None:
    """In double precision; the pixels are single, hence the tolerance."""
    settings = {**TINY, "method": name, "precision": "64-true", "threads": 1, **SETTINGS[name]}
    one = wcl.pretrain("digits", **settings, out=str(tmp_path / "one"))
    words = [f"--config={one / 'config.yaml'}", "--devices=2", f"--out={tmp_path / 'two'}"]
    subprocess.run([sys.executable, "-m", "wcl", "pretrain", *words], check=True)
    first, second = (checkpoint(run)["method"] for run in (one, tmp_path / "two"))
    assert first.keys() == second.keys()
    for key in first:
        torch.testing.assert_close(first[key], second[key], rtol=1e-5, atol=1e-6, msg=key)
    for line, other in zip(metrics(one), metrics(tmp_path / "two"), strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)


@pytest.mark.parametrize("name", [name for name in METHODS if not find_method(name).supports_crops])
def test_crops_for_a_method_without_them_are_an_input_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"crops__count: {name} .* set it to 0"):
        tiny_run(tmp_path / "run", method=name, crops={"count": 2})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("crops", [0, 2])
def test_support_views_reach_the_targets_and_positives_the_log(crops: int, tmp_path: Path) -> None:
    """The positives are all images of the batch of the same class."""
    settings: dict[str, Any] = {"method": "built_methods:Supported", "epochs": 1}
    settings["crops"] = {"count": crops, "size": 16, "scale": [0.3, 0.6]}
    epoch = metrics(tiny_run(tmp_path / "run", **settings))[-1]
    assert (epoch["pair_precision"], epoch["pair_recall"], epoch["conflicting"]) == (1, 1, 0)
    assert 0 < epoch["positives"] < 31


@pytest.mark.parametrize("name", ["supcon", "supervised"])
def test_labels_that_a_method_needs_but_are_missing_are_an_input_error(
    name: str, tmp_path: Path
) -> None:
    data = photo_folder(tmp_path / "data", classes=("only",), each=8)
    with pytest.raises(InputError, match=rf"method: {name} .*labels.* sub-folder") as refused:
        photo_run(data, tmp_path / "run", method=name)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_settings_with_defaults_and_documents_its_paper(name: str) -> None:
    found = find_method(name)
    found.Settings()
    assert sys.modules[found.__module__].__doc__
    assert found.__doc__


def test_methods_are_found_by_their_import_path() -> None:
    assert find_method("simclr") is find_method("wcl.methods.simclr:SimCLR") is SimCLR


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("simclir", r"no method simclir .*did you mean simclr.*package\.module:Class"),
        ("nowhere:Mine", r"nowhere:Mine cannot be imported"),
        ("wcl.methods.simclr:Mine", r"cannot be imported"),
        ("wcl.methods.simclr:SimCLRSettings", r"not a subclass of wcl\.methods\.Method"),
        (":", "cannot be imported"),
        ("MoCo", "did you mean moco"),
        ("../mine:Mine", "cannot be imported"),
    ],
)
def test_a_method_that_cannot_be_found_is_an_input_error(name: str, complaint: str) -> None:
    with pytest.raises(InputError, match=rf"method: .*{complaint}"):
        find_method(name)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class Mine(:", "SyntaxError"),
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("from wcl.methods import Method as Mine", "no dataclass `Settings`"),
    ],
)
def test_a_module_that_is_broken_is_an_input_error(
    source: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(InputError, match=complaint) as refused:
        find_method("broken:Mine")
    assert "\n" not in str(refused.value)
