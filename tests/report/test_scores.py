"""The scores of a report: evaluations or quick scores, and the verdict on them."""

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
    assert "0.875" in page.text and "93.8% of" in page.text
    assert "no lowshot: too few" in page.text
    assert "quick scores" not in page.text
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
    assert "quick scores" in page.text and "87.5%" not in page.text


def score_row(
    runs: dict[int, float], untrained: dict[int, float], protocol: str = "knn", **values: Any
) -> Row:
    """A row of the table, with values that all runs have in common."""
    row: dict[str, Any] = {"protocol": protocol, "setting": "k = 5", "measure": "top1"}
    row |= {"n_train": 900, "n_test": 1000, **values}
    scores = Scores()
    for number, score in runs.items():
        scores.add(number, {**row, "encoder": score, "untrained": untrained[number]})
    return scores.rows[0]


@pytest.mark.parametrize(("score", "answer"), [(0.9, "Yes"), (0.83, "Not clearly"), (0.5, "No")])
def test_the_answer_depends_on_the_better_baseline(score: float, answer: str) -> None:
    row = score_row({0: score}, {0: 0.3}, pixels=0.8)
    (verdict,) = verdicts(Scores([row]), ["a"])
    assert verdict.answer == answer
    assert f"{100 * abs(score - 0.8):.1f} ± " in verdict.sentence


def test_scores_on_other_data_do_not_decide_if_there_are_some_on_these() -> None:
    scores = Scores([score_row({0: 0.5}, {0: 0.5})])
    scores.add(0, {**scores.rows[0].measured[0], "encoder": 0.9}, "elsewhere")
    (verdict,) = verdicts(scores, ["a"])
    assert verdict.answer == "Not clearly" and "90.0%" not in verdict.sentence


def test_the_untouched_encoder_is_shown_and_named(copy: Path, photos: Path) -> None:
    about: dict[str, Any] = {"data": str(photos), "pretrained_run": "timm:resnet18@`<b>.pth"}
    write_evaluation(copy, {"encoder": 0.5, "pretrained": 0.875, "n_test": 900}, **about)
    page = report_of(copy)
    assert "No: by k\u2011NN, the encoder classifies 50.0%" in page.text
    assert "87.5% untouched" in page.text and "timm:resnet18@" in page.text
    assert "path" in {name for name, _ in page.elements}


def score_table(row: Row) -> str:
    """The markup of a table of one row."""
    template = environment().get_template("scores.html")
    return template.render(
        scores=Scores([row]), names=["a", "b"], verdicts=[], unlabeled={}, notes=[]
    )


@pytest.mark.parametrize(
    ("row", "marked"),
    [
        (score_row({0: 0.9, 1: 0.8}, {0: 0.5, 1: 0.5}, pixels=0.7), ["0.900"]),
        (score_row({0: 0.9, 1: 0.8}, {0: 0.95, 1: 0.95}), []),
        (score_row({0: 0.6, 1: 0.5}, {0: 0.3, 1: 0.4}, pixels=0.7), []),
        (score_row({1: 0.8}, {0: 0.5, 1: 0.5}), []),
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
            score_row({0: 0.9, 1: 0.8}, {0: 0.5, 1: 0.5}, pixels=0.7),
            ["raw pixels", "a", "b"],
        ),
        (score_row({0: 0.9, 1: 0.8}, {0: 0.5, 1: 0.5}), ["untrained", "a", "b"]),
        (score_row({1: 0.8}, {1: 0.3}, "linear"), ["b"]),
        (score_row({0: 0.8}, {0: 0.3}, "finetune"), ["from scratch", "a"]),
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
