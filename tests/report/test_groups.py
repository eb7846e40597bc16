"""The groups of a report: those of the method, each shown once."""

import dataclasses
from pathlib import Path

import torch

import wcl
from report_pages import (
    Page,
    report_of,
    tiny_photo_run,
)
from wcl.data import open_source
from wcl.methods.wcl import WCLSettings
from wcl.models.encoder import load
from wcl.report.groups import Group, notable
from wcl.report.images import choose, encode
from wcl.report.runs import read_run


def test_the_map_groups_images_as_the_paper_does(run: Path, photos: Path) -> None:
    encoder, images = load(run), choose(open_source(str(photos)), 100, 0)
    read = read_run(str(run))
    for loss in (WCLSettings(), WCLSettings(labels_from="h")):
        config = dataclasses.replace(read.config, loss=loss)
        encoded = encode(dataclasses.replace(read, config=config), encoder, images, 0)
        with torch.no_grad():
            h = encoded.features
            found_by = h if loss.labels_from == "h" else encoder.heads["phi"](h)
        expected = wcl.weak_labels(found_by, backend="scipy")
        labels = encoded.weak_labels
        assert labels is not None
        same = labels[:, None] == labels[None]
        assert torch.equal(same, expected[:, None] == expected[None])


def test_a_run_with_one_head_has_groups_too(photos: Path, tmp_path: Path) -> None:
    shared = tiny_photo_run(photos, tmp_path / "shared", loss={"heads": "shared"})
    assert "has no weak labels" not in report_of(shared).text


def test_every_group_is_shown_once(page: Page) -> None:
    rows: list[list[str]] = []
    for tag, attributes in page.elements:
        if tag == "figure":
            rows.append([])
        elif tag == "img" and attributes["src"].startswith("data:"):
            rows[-1].append(attributes["title"])
    own = rows[: next(n for n, row in enumerate(rows) if row[0].startswith("image: "))]
    assert own and len({*map(tuple, own)}) == len(own)


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
