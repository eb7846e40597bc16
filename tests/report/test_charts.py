"""The curves of a report: what the run logged, without invalid lines."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from report_pages import Page, report_of
from wcl.config import PretrainConfig
from wcl.report.charts import charts
from wcl.report.runs import Run, read_runs


def test_curves_are_the_lines_of_the_run(run: Path, page: Page) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    drawn = {chart["name"]: chart["lines"][0] for chart in page.data["charts"]}
    assert {"loss", "nce", "swap", "lr", "rankme", "components", "purity"} <= drawn.keys()
    assert {"collision_rate", "neighbor_similarity", "images_per_second"} <= drawn.keys()
    rankme = [line["rankme"] for line in lines if line["kind"] == "epoch"]
    assert page.data["x"] == "epoch"
    assert drawn["rankme"][0] == [1, 2]
    assert drawn["rankme"][1] == pytest.approx(rankme, rel=1e-4)
    rates = [line["lr"] for line in lines if line["kind"] == "step"]
    assert drawn["lr"][1] == pytest.approx(rates, rel=1e-4)
    (loss,) = [chart for chart in page.data["charts"] if chart["name"] == "loss"]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    assert loss["dots"][0][1] == pytest.approx(losses, rel=1e-4)


def logged(kind: str, values: Sequence[float]) -> Run:
    """Return a run with these losses and learning rates, one per step."""
    lines = [
        {"kind": kind, "step": n, "epoch": n, "loss": value, "lr": value}
        for n, value in enumerate(values, 1)
    ]
    return Run(Path(), "a", PretrainConfig(), lines=lines)


def test_long_curves_are_thinned_to_means() -> None:
    values = np.random.default_rng(0).normal(size=3000)
    x, y = charts([logged("step", values.tolist())])["charts"][0]["dots"][0]
    assert y == pytest.approx(values.reshape(300, 10).mean(axis=1), rel=1e-4)
    assert x == pytest.approx(np.arange(3000).reshape(300, 10).mean(axis=1) + 1, rel=1e-4)


def test_steps_scatter_about_a_line_of_their_means() -> None:
    loss, rate = charts([logged("step", [5.0, 1, 6, 2, 7, 3])])["charts"]
    assert loss["dots"][0][1] == [5, 1, 6, 2, 7, 3]
    assert loss["lines"][0][1] == [3, 4, 3, 5, 4, 5]
    assert loss["lines"][0][0] == loss["dots"][0][0]
    assert rate["lines"][0][1] == [5, 1, 6, 2, 7, 3] and rate["dots"] == [None]  # it is planned
    two, _ = charts([logged("step", [5.0, 1])])["charts"]
    assert two["lines"][0][1] == [5, 1] and two["dots"] == [None]


def test_of_many_epochs_the_line_has_one_point_each() -> None:
    loss, _ = charts([logged("epoch", [5.0, 1, 6, 2, 7, 3])])["charts"]
    assert loss["lines"][0][1] == [5, 1, 6, 2, 7, 3] and loss["dots"] == [None]


def test_a_few_epochs_of_which_hardly_a_step_is_logged_are_drawn_by_their_means() -> None:
    means, steps = logged("epoch", [9.0, 7, 6]).lines, logged("step", [4.0, 5, 6]).lines
    loss, _ = charts([Run(Path(), "a", PretrainConfig(), lines=[*means, *steps])])["charts"]
    assert loss["lines"][0][1] == [9, 7, 6] and loss["dots"] == [None]


def test_a_metric_of_a_new_method_is_drawn_under_its_name() -> None:
    lines = [{"kind": "epoch", "step": n, "epoch": n, "queue_age": n / 2} for n in (1, 2)]
    (chart,) = charts([Run(Path(), "a", PretrainConfig(), lines=lines)])["charts"]
    assert chart["title"] == "Queue age" and chart["lines"][0][1] == [0.5, 1]


def test_lines_that_are_no_numbers_are_left_out(copy: Path) -> None:
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "epoch", "step": 9, "epoch": 3, "rankme": NaN}\n[1]\n{"kind": "ep')
    drawn = charts(read_runs([str(copy)]))["charts"]
    assert [len(c["lines"][0][0]) for c in drawn if c["name"] == "rankme"] == [2]


def test_a_run_in_its_first_epoch_has_curves_by_step(copy: Path) -> None:
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    (copy / "metrics.jsonl").write_text(lines[0] + "\n")
    (copy / "encoder.safetensors").unlink()
    page = report_of(copy)
    assert page.data["x"] == "step" and page.data["map"] is None
    assert "until the first epoch has ended" in page.text


def test_a_run_without_metrics_has_all_but_curves(copy: Path) -> None:
    (copy / "metrics.jsonl").unlink()
    page = report_of(copy)
    assert page.data["charts"] == [] and page.data["map"]
    assert "nothing is logged yet" in page.text
