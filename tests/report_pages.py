"""Runs and data for tests of reports, and a parser for the pages."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from PIL import Image

from images import photo_folder
from runs import photo_run
from wcl.config import ReportConfig
from wcl.report.build import write_report

# File names cannot hold a slash, so these elements are left open.
WICKED_FILE = "<script>alert(1)<img src=x onerror=alert(2)>.jpg"
WICKED_CLASS = '<b title="x">cat & co'
MAGENTA = (230, 20, 200)


def wicked_photos(root: Path) -> Path:
    """Write two classes of twelve photos; one class and one file have hostile names."""
    photo_folder(root, (WICKED_CLASS, "dog"))
    Image.new("RGB", (60, 60), MAGENTA).save(root / WICKED_CLASS / WICKED_FILE, quality=95)
    return root


def tiny_photo_run(data: Path, out: Path, **changes: Any) -> Path:
    return photo_run(data, out, **{"num_workers": 0, **changes})


def write_evaluation(run: Path, *rows: dict[str, Any], **changes: Any) -> None:
    """Write what `wcl eval all` leaves in a run folder, with these rows and values."""
    row = {"protocol": "knn", "measure": "top1", "setting": "k = 3", "encoder": 0.875}
    row |= {"untrained": 0.5, "n_train": 9, "n_test": 9}
    evaluation = {"data": "digits", "test_data": "", "classes": 0, "left_out": {}, "sha256": ""}
    evaluation |= {"rows": [{**row, **own} for own in rows], **changes}
    (run / "evaluation.json").write_text(json.dumps(evaluation))


class Page(HTMLParser):
    """The elements of a page, its texts and its data."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._inside = ""
        self._scripts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        self.data: dict[str, Any] = json.loads(self._scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag
        if tag == "script":
            self._scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self._scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def report_of(*runs: Path, **options: Any) -> Page:
    return Page(write_report([str(one) for one in runs], ReportConfig(**options)))
