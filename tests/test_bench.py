"""The benchmarks run and print the figures under their names; what they measure is not judged."""

import json
import math

import pytest

from wcl.bench import crops, eval, knn  # noqa: A004
from wcl.cli import run_command


def figures(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    assert run_command(["bench", name, "--rounds", "1", "--json"]) == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


def test_the_search_is_measured_under_its_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(knn, "_EXACT", (1500, 32))
    monkeypatch.setattr(knn, "_SIZES", (1000, 2000))
    monkeypatch.setattr(knn, "_QUERIES", 500)
    found = figures("knn", capsys)
    assert found["ours_over_faiss_flat"] > 0
    assert 0.95 <= found["approx_recall"] <= 1
    ratio = found["approximate_seconds_2000"] / found["exact_seconds_2000"]
    assert found["approx_over_exact"] == pytest.approx(ratio)


def test_crops_are_measured_beside_their_arithmetic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crops, "_IMAGES", 2)
    monkeypatch.setattr(crops, "_SIMCLR", [(2, 64)])
    monkeypatch.setattr(crops, "_CROPS", [(2, 48), (6, 32)])
    found = figures("crops", capsys)
    assert found["crops_over_simclr"] > 0
    assert math.isclose(found["pixels_ratio"], (2 * 48**2 + 6 * 32**2) / (2 * 64**2))


def test_the_probe_is_measured_under_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(eval, "_IMAGES", 2000)
    monkeypatch.setattr(eval, "_TIMED", 64)
    monkeypatch.setattr(eval, "_EPOCHS", 2)
    found = figures("eval", capsys)
    assert found["full_over_fast"] == pytest.approx(found["full_seconds"] / found["fast_seconds"])
