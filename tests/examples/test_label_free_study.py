"""The study of label-free figures: correlations against SciPy, and a run measured to the end."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from label_free_study import interval, main, pooled_correlation
from runs import tiny_run


def row(data: str, figure: float, knn: float) -> dict[str, Any]:
    return {"data": data, "encoder": {"rankme": figure, "alpha_req": 1 + figure, "knn": knn}}


def test_one_data_set_has_spearmans_correlation() -> None:
    values = np.random.default_rng(0).normal(size=(20, 2)).round(1)  # with ties
    rows = [row("a", *pair) for pair in values]
    assert pooled_correlation(rows, "rankme", "knn") == pytest.approx(spearmanr(*values.T)[0])


def test_data_sets_are_pooled_by_ranks() -> None:
    low = [row("a", x, 0.1 + x / 100) for x in range(5)]
    high = [row("b", x - 100, 0.9 + x / 100) for x in range(5)]
    assert pooled_correlation(low + high, "rankme", "knn") == pytest.approx(1)
    first, last = interval(low + high, "rankme", "knn")
    assert 0.9 < first <= last <= 1
    assert pooled_correlation(low, "alpha_req", "knn") == pytest.approx(-1)  # 1 is best


def test_a_run_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_run(tmp_path / "runs" / "one", epochs=1)
    out = tmp_path / "study.jsonl"
    monkeypatch.setattr(sys, "argv", ["label_free_study.py", str(tmp_path), "--out", str(out)])
    main()
    main()
    (line,) = out.read_text().splitlines()
    measured = json.loads(line)
    assert measured["run"] == str(run) and measured["data"] == "digits"
    assert 0 < measured["untrained"]["knn"] < 1 and 0 < measured["pixels"]["ten_labels"] < 1
    assert "| neighbor_agreement |" in capsys.readouterr().out
