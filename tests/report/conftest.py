"""A run on photos with hostile names, and its report, shared by tests."""

import shutil
from pathlib import Path

import pytest

from report_pages import Page, tiny_photo_run, wicked_photos
from runs import CROPS
from wcl.config import ReportConfig
from wcl.report.build import write_report


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wicked_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    crops = CROPS
    return tiny_photo_run(photos, tmp_path_factory.mktemp("runs") / "first", crops=crops)


@pytest.fixture(scope="session")
def page(run: Path) -> Page:
    return Page(write_report([str(run)], ReportConfig()))


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(run, tmp_path / "copy"))
