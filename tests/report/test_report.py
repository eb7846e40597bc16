"""`wcl report`: what the page says is what was measured, and what is missing is said."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import wcl
from images import flat_folder
from report_pages import (
    WICKED_CLASS,
    WICKED_FILE,
    Page,
    report_of,
    tiny_photo_run,
    wicked_photos,
)
from runs import tiny_run
from wcl.config import ReportConfig
from wcl.data import open_source
from wcl.methods.wcl import WCLSettings
from wcl.models.encoder import load
from wcl.report.build import write_report
from wcl.report.groups import Group, notable
from wcl.report.headline import loss_notes
from wcl.report.images import choose, encode
from wcl.report.runs import read_run
from wcl.system.errors import InputError


def test_the_questions_come_in_their_order(page: Page) -> None:
    questions = (
        "Did it work?",
        "Is it healthy?",
        "What did it group?",
        "How are the images arranged?",
    )
    places = [page.text.rindex(question) for question in (*questions, "How was it trained?")]
    assert places == sorted(places)


def test_it_is_one_file_that_refers_to_nothing_else(page: Page) -> None:
    for _, attributes in page.elements:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), attributes


def test_names_from_the_disk_stay_text(page: Page) -> None:
    assert len(page.all("script")) == 2
    assert not [attributes for attributes in page.all("img") if "onerror" in attributes]
    assert not [attributes for attributes in page.all("b") if "title" in attributes]
    assert f"{WICKED_CLASS}/{WICKED_FILE}" in page.data["map"]["names"]
    assert page.data["map"]["classes"] == [WICKED_CLASS, "dog"]


def test_every_picture_has_words(page: Page) -> None:
    assert len(page.all("img")) > 20
    assert all(attributes["alt"] for attributes in page.all("img"))


def test_the_map_groups_images_as_the_paper_does(run: Path, photos: Path) -> None:
    encoder, images = load(run), choose(open_source(str(photos)), 100, 0)
    config = read_run(str(run)).config
    assert config is not None
    for loss in (WCLSettings(), WCLSettings(labels_from="h")):
        encoded = encode(encoder, images, dataclasses.replace(config, loss=loss), 0)
        with torch.no_grad():
            h = encoded.features
            found_by = h if loss.labels_from == "h" else encoder.heads["phi"](h)
        expected = wcl.weak_labels(found_by, backend="scipy")
        labels = encoded.weak_labels
        assert labels is not None
        same = labels[:, None] == labels[None]
        assert torch.equal(same, expected[:, None] == expected[None])


def test_an_encoder_that_is_older_than_the_curves_says_so(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    further = {**json.loads(lines[-1]), "epoch": 3, "step": 99}
    (tmp_path / "copy" / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(further), ""]))
    said = "the encoder is from epoch 2, but the curves go on to epoch 3"
    assert said in report_of(tmp_path / "copy").text
    assert said not in report_of(run).text


def test_a_run_with_one_head_learns_from_groups_too(photos: Path, tmp_path: Path) -> None:
    shared = tiny_photo_run(photos, tmp_path / "shared", loss={"heads": "shared"})
    assert "does not learn from groups" not in report_of(shared).text


def test_runs_side_by_side_share_lines_maps_and_names(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    other = tiny_photo_run(photos, tmp_path / "second" / "first", method="simclr")
    (run / "report.html").write_text("of the first run alone")
    page = report_of(run, other)
    assert (run / "report.html").read_text() == "of the first run alone"
    assert len([*run.glob("report-with-second-first-*.html")]) == 1
    assert len(set(page.data["runs"])) == 2
    assert [one["run"] for one in page.data["map"]["maps"]] == [0, 1]
    swap = next(chart for chart in page.data["charts"] if chart["name"] == "swap")
    assert swap["lines"][0] and swap["lines"][1] is None
    assert "does not learn from groups" in page.text
    assert page.text.count("Weak labels of one batch") == 2


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
    assert "wcl on digits: trained on all 1,297 images" in report_of(every).text
    assert "wcl on digits: trained on 128 of 1,297 images" in report_of(some).text
    labels = open_source("digits").labels
    assert labels is not None
    several = f"trained on {int((labels < 3).sum())} (classes) and 128 (some) of 1,297 images"
    assert several in report_of(classes, some).text


def test_the_headline_says_how_many_images_are_shown(tmp_path: Path) -> None:
    page = report_of(tiny_run(tmp_path / "run", epochs=1), images=40)
    assert "trained on 128 of 1,297 images; 40 are shown here" in page.text
    assert "--data digits --images 40" in page.text


def test_every_group_is_shown_once(page: Page) -> None:
    rows: list[list[str]] = []
    for tag, attributes in page.elements:
        if tag == "figure":
            rows.append([])
        elif tag == "img" and attributes["src"].startswith("data:"):
            rows[-1].append(attributes["title"])
    own = rows[: next(n for n, row in enumerate(rows) if row[0].startswith("image: "))]
    assert own and len({*map(tuple, own)}) == len(own)


def test_losses_of_batches_of_two_sizes_are_said_not_to_compare(run: Path) -> None:
    one, other = read_run(str(run)), read_run(str(run))
    assert one.config is not None
    assert loss_notes([one, other]) == []
    other.config = dataclasses.replace(one.config, batch_size=2 * one.config.batch_size)
    (said,) = loss_notes([one, other])
    assert f"{one.config.batch_size} and {other.config.batch_size}" in said


def test_no_group_is_both_pure_and_mixed() -> None:
    pure, half, mixed = (
        Group([*range(n, n + 4)], classes)
        for n, classes in ((0, [(0, 1.0)]), (4, [(0, 0.5), (1, 0.5)]), (8, [(0, 0.25)] * 4))
    )
    pair = Group([12, 13], [(0, 0.5), (1, 0.5)])
    assert notable([pure]) == {"Largest": [pure], "Purest": [], "Most mixed": []}
    found = {"Largest": [pure, half], "Purest": [pure], "Most mixed": [half]}
    assert notable([pure, half]) == found
    assert notable([pure, half, mixed, pair])["Most mixed"] == [mixed]
    assert notable([pure, pure])["Most mixed"] == []
    assert notable([half, mixed])["Purest"] == []  # though it is purer than the other
    assert notable([Group([1, 2, 3], [])])["Purest"] == []  # without labels


def test_without_labels_what_needs_them_is_left_out_and_said(tmp_path: Path) -> None:
    data = flat_folder(tmp_path / "flat", 16)
    page = report_of(tiny_photo_run(data, tmp_path / "run"))
    assert page.data["map"]["labels"] is None
    assert "the images have no labels" in page.text
    assert "unknown which groups are pure" in page.text
    assert "Purest" not in page.text
    assert "purity" not in [chart["name"] for chart in page.data["charts"]]


def test_settings_that_cannot_be_read_are_said(copy: Path, photos: Path) -> None:
    (copy / "config.yaml").write_text("color: blue\n")
    page = report_of(copy, data=str(photos))
    assert "its settings cannot be read" in page.text
    assert "has no weak labels" in page.text and "augmentations are unknown" in page.text
    assert page.data["map"]["maps"][0]["group"] is None


def test_images_that_are_gone_are_said(tmp_path: Path) -> None:
    data = wicked_photos(tmp_path / "photos")
    run = tiny_photo_run(data, tmp_path / "run")
    for file in sorted(data.rglob("0*.jpg"))[:5]:
        file.write_bytes(b"")
    assert "5 images cannot be read" in report_of(run).text
    shutil.rmtree(data)
    page = report_of(run)
    assert (
        "training images cannot be opened" in page.text
        and page.data["map"] is None
        and page.data["charts"]
    )


def test_runs_of_different_data_must_say_which_to_show(run: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "digits", epochs=1)
    with pytest.raises(InputError, match="--data: the runs were trained on different data"):
        write_report([str(run), str(other)], ReportConfig())
    page = report_of(run, other, data="digits", images=40, out=str(tmp_path / "r.html"))
    assert "trained on different data" in page.text and len(page.data["map"]["maps"]) == 2
