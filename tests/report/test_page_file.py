"""Where a report is written: a name for every set of runs, and nothing of others replaced."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wcl.cli import run_command
from wcl.config import ReportConfig
from wcl.report.build import default_file, write_report
from wcl.report.runs import Run
from wcl.system.errors import InputError


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
        (["a", "b" * 150, "c" * 150], "report-with-2-others-########.html"),
    ],
)
def test_a_comparison_has_a_file_of_its_own(names: list[str], file: str) -> None:
    runs = [Run(Path("runs") / name, name) for name in names]
    pattern = re.escape(file).replace(re.escape("#"), "[0-9a-f]")
    assert default_file(runs).parent == Path("runs") / names[0]
    assert re.fullmatch(pattern, default_file(runs).name)


def test_no_comparison_has_the_file_of_another() -> None:
    def file(*places: str) -> Path:
        return default_file([Run(Path(p), Path(p).name) for p in places])

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
        (["report", "nowhere"], "nowhere: no run there"),
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
    """The run on a disk that takes nothing."""
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


def test_a_page_that_cannot_be_written_is_said_before_all_work(
    read_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = ["--data", "nowhere"]  # which would be said first otherwise
    for out in ([], ["--out", f"{read_only}/page.html"]):
        assert run_command(["report", str(read_only), *later, *out]) == 2
        complaint = capsys.readouterr().err
        file = read_only / ("page.html" if out else "report.html")
        assert f"{file}: cannot be written (Read-only file system); choose another" in complaint
        assert "--out" in complaint and complaint.count("\n") == 1
    page = tmp_path / "page.html"
    assert run_command(["report", str(read_only), "--images", "8", "--out", str(page)]) == 0
