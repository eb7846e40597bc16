"""The scores of a report: evaluations or a quick k-NN, and the verdict on them."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from report_pages import report_of, write_evaluation
from runs import tiny_run
from wcl.models.encoder import load
from wcl.report.page import environment
from wcl.report.runs import read_runs
from wcl.report.scores import Row, Scores, evaluated, verdicts

_MARKS = r'<rect class="(pixels)"|<circle class="(?:dot )?(\w+)"'


def test_what_was_evaluated_is_shown_and_not_measured_again(copy: Path, photos: Path) -> None:
    rows = {"encoder": 0.875}, {"protocol": "linear", "setting": "x", "encoder": 0.9375}
    found: dict[str, Any] = {"data": str(photos), "left_out": {"lowshot": "too few"}}
    write_evaluation(copy, *rows, **found, sha256=load(copy).description.sha256)
    page = report_of(copy)
    assert "87.5% of" in page.text and "0.938" in page.text
    assert "no lowshot: too few" in page.text
    assert "quick k-NN" not in page.text
    assert "trained further" not in page.text
    write_evaluation(copy, *rows, **found, sha256="0" * 64)
    assert "trained further since its evaluation" in report_of(copy).text


def test_a_copy_of_a_run_was_not_trained_further(copy: Path) -> None:
    def notes(of: Path) -> list[str]:
        return evaluated(read_runs([str(of)])).notes

    write_evaluation(copy, sha256=load(copy).description.sha256)
    for second, name in enumerate(("evaluation.json", "encoder.safetensors")):
        os.utime(copy / name, (second, second))  # as when it was copied later
    assert notes(copy) == []
    encoder = load(copy)
    with torch.no_grad():
        next(encoder.backbone.parameters()).add_(1)
    encoder.save(copy / "encoder.safetensors")
    (note,) = notes(copy)
    assert "trained further since its evaluation" in note


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"data": "elsewhere"}, "elsewhere"),
        ({"data": "digits", "test_data": "others"}, "digits, tested on others"),
        ({"data": "digits", "classes": 3}, "digits, 3 classes"),
    ],
)
def test_what_was_evaluated_on_other_data_says_so(
    about: dict[str, Any], said: str, tmp_path: Path
) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    write_evaluation(run, {"encoder": 0.875}, **about)
    page = report_of(run)
    assert f"k = 3, on {said}" in page.text and "0.875" in page.text
    assert "quick k-NN" in page.text and "87.5%" not in page.text


@pytest.mark.parametrize(("score", "answer"), [(0.9, "Yes"), (0.83, "Not clearly"), (0.5, "No")])
def test_the_answer_depends_on_the_better_baseline(score: float, answer: str) -> None:
    row = Row("knn", "k = 5", "top1", 900, 1000, {0: score}, {0: 0.3}, pixels=0.8)
    (verdict,) = verdicts(Scores([row]), ["a"])
    assert verdict.answer == answer
    assert f"{abs(score - 0.8) * 100:.1f} points" in verdict.sentence


def score_table(row: Row) -> str:
    """The markup of a table of one row."""
    template = environment().get_template("scores.html")
    return template.render(scores=Scores([row]), names=["a", "b"], verdicts=[], notes=[])


@pytest.mark.parametrize(
    ("row", "marked"),
    [
        (Row("knn", "", "top1", 9, 9, {0: 0.9, 1: 0.8}, {0: 0.5, 1: 0.5}, pixels=0.7), ["0.900"]),
        (Row("knn", "", "top1", 9, 9, {0: 0.9, 1: 0.8}, {0: 0.95, 1: 0.95}), []),
        (Row("knn", "", "top1", 9, 9, {0: 0.6, 1: 0.5}, {0: 0.3, 1: 0.4}, pixels=0.7), []),
        (Row("knn", "", "top1", 9, 9, {1: 0.8}, {0: 0.5, 1: 0.5}), []),
    ],
)
def test_the_better_run_stands_out_if_it_is_also_better_than_no_training(
    row: Row, marked: list[str]
) -> None:
    table = score_table(row)
    assert re.findall("<strong>(.*?)</strong>", table) == marked


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            Row("knn", "", "top1", 9, 9, {0: 0.9, 1: 0.8}, {0: 0.5, 1: 0.5}, pixels=0.7),
            ["raw pixels", "a", "b"],
        ),
        (Row("knn", "", "top1", 9, 9, {0: 0.9, 1: 0.8}, {0: 0.5, 1: 0.5}), ["untrained", "a", "b"]),
        (Row("linear", "", "top1", 9, 9, {1: 0.8}, {1: 0.3}), ["b"]),
        (Row("finetune", "", "top1", 9, 9, {0: 0.8}, {0: 0.3}), ["from scratch", "a"]),
    ],
)
def test_the_legend_of_scores_has_every_mark_that_is_drawn_and_no_other(
    row: Row, says: list[str]
) -> None:
    table, legend = score_table(row).split('class="legend')
    assert {*re.findall(_MARKS, table)} == {*re.findall(_MARKS, legend)}
    assert ("raw pixels" in legend) == ("raw pixels" in says)
    assert all(word in legend for word in says)
    assert ("from scratch" in legend) == ("from scratch" in says)
