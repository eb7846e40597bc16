"""`wcl report`: the page shows what was measured and what is missing, in a file of its own."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import flat_folder
from report_pages import (
    WICKED_CLASS,
    WICKED_FILE,
    Page,
    report_of,
    tiny_photo_run,
    wicked_photos,
)
from wcl.cli import run_command
from wcl.config import PretrainConfig, ReportConfig
from wcl.report.build import default_file, write_report
from wcl.report.runs import Run
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


def test_every_picture_has_alternative_text(page: Page) -> None:
    assert len(page.all("img")) > 20
    assert all(attributes["alt"] for attributes in page.all("img"))


def test_an_encoder_that_is_older_than_the_curves_says_so(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    further = {**json.loads(lines[-1]), "epoch": 3, "step": 99}
    (tmp_path / "copy" / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(further), ""]))
    said = "the encoder is from epoch 2, but the curves go on to epoch 3"
    assert said in report_of(tmp_path / "copy").text
    assert said not in report_of(run).text


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
    assert page.text.count("has no weak labels") == 1
    assert page.data["map"]["maps"][0]["group"] and page.data["map"]["maps"][1]["group"] is None
    assert page.text.count("Weak labels of one batch") == 2


def test_without_labels_the_page_says_what_is_left_out(tmp_path: Path) -> None:
    data = flat_folder(tmp_path / "flat", 16)
    page = report_of(tiny_photo_run(data, tmp_path / "run"))
    assert page.data["map"]["labels"] is None
    assert "the images have no labels" in page.text
    assert "no scores yet" not in page.text
    verdict = page.text.index("Was it trained long enough?")  # which comes first
    assert "are few" in page.text[verdict:] and verdict < page.text.index("No accuracy")
    assert page.text.count("Next: train again") == 1
    assert "unknown which groups are pure" in page.text
    assert "Purest" not in page.text
    assert "purity" not in [chart["name"] for chart in page.data["charts"]]


def test_unreadable_settings_are_an_error_that_names_the_file(copy: Path) -> None:
    (copy / "config.yaml").write_text("color: blue\n")
    with pytest.raises(InputError, match=r"config\.yaml"):
        report_of(copy)


def test_missing_images_are_reported(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("names", "file"),
    [
        (["a"], "report.html"),
        (["a", "b.2"], "report-with-b.2.html"),
        (["a", "b-2"], "report-with-b-2.html"),
        (["x/a", "y/a", "ß b"], "report-with-y-a-ß-b-########.html"),
        (["a", "a (2)"], "report-with-a-2-########.html"),
        (["a", "<b>/c"], "report-with-b-c-########.html"),
        (["a", "***"], "report-with--########.html"),
        (["a", "b" * 50, "c" * 50], f"report-with-{'b' * 50}-{'c' * 9}-########.html"),
    ],
)
def test_a_comparison_has_a_file_of_its_own(names: list[str], file: str) -> None:
    runs = [Run(Path("runs") / name, name, PretrainConfig()) for name in names]
    pattern = re.escape(file).replace(re.escape("#"), "[0-9a-f]")
    assert default_file(runs).parent == Path("runs") / names[0]
    assert re.fullmatch(pattern, default_file(runs).name)


def test_no_comparison_has_the_file_of_another() -> None:
    def file(*places: str) -> Path:
        return default_file([Run(Path(p), Path(p).name, PretrainConfig()) for p in places])

    long = "b" * 150
    found = [
        file("runs/a", *others)
        for others in (
            ["runs/b"],
            ["old/b"],
            ["older/b"],
            ["runs/b c"],
            ["runs/b-c"],
            ["runs/b", "runs/c"],
            ["runs/c", "runs/b"],
            [f"runs/{long}", f"runs/{long}2"],
            [f"runs/{long}", f"runs/{long}3"],
        )
    ]
    assert len({*found}) == len(found)
    assert file("runs/a", "old/b") == file("runs/a", "./old/b") == found[1]


def test_the_default_file_is_replaced_and_no_other(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_report([str(run)], ReportConfig(out=str(tmp_path / "mine.html")))
    assert (tmp_path / "mine.html").read_text() == "mine"
    (run / "report.html").write_text("old")
    write_report([str(run)], ReportConfig())
    assert "Did it work?" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report"], "missing: runs; usage: wcl report RUN"),
        (["report", "nowhere"], "nowhere: not a run folder"),
        (["report", "RUN", "--data", "nowhere"], "nowhere: no such data"),
        (["report", "RUN", "--images", "1"], "--images: must be between"),
        (["report", "RUN", "--out", "a.pdf"], "must be a .html file"),
    ],
)
def test_mistakes_are_one_line(
    run: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([str(run) if word == "RUN" else word for word in words]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint and complaint.count("\n") == 1


@pytest.fixture
def read_only(run: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the run on a read-only disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        shutil.copytree(run, disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield disk / "run"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_page_that_cannot_be_written_is_reported_before_all_work(
    read_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = ["--data", "nowhere"]  # which would otherwise be reported first
    for out in ([], ["--out", f"{read_only}/page.html"]):
        assert run_command(["report", str(read_only), *later, *out]) == 2
        complaint = capsys.readouterr().err
        file = read_only / ("page.html" if out else "report.html")
        assert f"{file}: cannot be written (Read-only file system); choose another" in complaint
        assert "--out" in complaint and complaint.count("\n") == 1
    page = tmp_path / "page.html"
    assert run_command(["report", str(read_only), "--images", "8", "--out", str(page)]) == 0
