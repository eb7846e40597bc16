"""The headline and the notes of a report: which data, and how many images."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from report_pages import (
    Page,
    report_of,
)
from runs import tiny_run
from wcl.config import ReportConfig
from wcl.data import open_source
from wcl.report.build import write_report
from wcl.report.headline import loss_notes
from wcl.report.runs import read_run
from wcl.system.errors import InputError


def settings_alone(folder: Path, **values: Any) -> Path:
    """A run that has just begun."""
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps({"data": "digits", **values}))
    return folder


def test_the_headline_counts_the_images_that_were_trained_on(page: Page, tmp_path: Path) -> None:
    count = len(page.data["map"]["names"])
    assert f"trained on all {count} images; {count} are shown" in page.text
    every = settings_alone(tmp_path / "every")
    some = settings_alone(tmp_path / "some", limit=128)
    classes = settings_alone(tmp_path / "classes", classes=3, limit=1000)
    assert "wcl on digits, unfinished: trained on all 1,297 images" in report_of(every).text
    assert "wcl on digits, unfinished: trained on 128 of 1,297 images" in report_of(some).text
    labels = open_source("digits").labels
    assert labels is not None
    several = f"trained on {int((labels < 3).sum())} (classes) and 128 (some) of 1,297 images"
    assert several in report_of(classes, some).text


def test_the_headline_says_how_many_images_are_shown(tmp_path: Path) -> None:
    page = report_of(tiny_run(tmp_path / "run", epochs=1), images=40)
    assert "trained on 128 of 1,297 images; 40 are shown here" in page.text
    assert "--data digits --images 40" in page.text


def test_an_unfinished_run_is_called_so(page: Page, tmp_path: Path) -> None:
    assert "nfinished" not in page.text
    run = tiny_run(tmp_path / "run", epochs=1)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 1\n", "epochs: 7\n", 1))
    text = report_of(run, images=40).text
    assert "Unfinished: “run” has been trained for 1 of 7 epochs; its scores may" in text


def test_losses_of_two_batch_sizes_do_not_compare(run: Path) -> None:
    one, other = read_run(str(run)), read_run(str(run))
    assert one.config is not None
    assert loss_notes([one, other]) == []
    other.config = dataclasses.replace(one.config, batch_size=2 * one.config.batch_size)
    (said,) = loss_notes([one, other])
    assert f"{one.config.batch_size} and {other.config.batch_size}" in said


def test_runs_of_different_data_need_a_choice(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "digits", epochs=1)
    with pytest.raises(InputError, match="--data: the runs were trained on different data"):
        write_report([str(run), str(other)], ReportConfig())
    page = report_of(run, other, data="digits", images=40, out=str(tmp_path / "r.html"))
    assert "trained on different data" in page.text and len(page.data["map"]["maps"]) == 2
