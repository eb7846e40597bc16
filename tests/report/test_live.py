"""The state of a run that the live page asks for."""

from pathlib import Path

import pytest

from runs import tiny_run
from wcl.report.live import run_state
from wcl.report.runs import read_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits")


def test_the_state_has_the_curves_once(run: Path) -> None:
    found = run_state(read_run(str(run)))
    assert found["status"] == "finished: 2 epochs, 8 steps"
    assert found["progress"] == 1 and not found["training"] and not found["stoppable"]
    assert {"loss", "rankme"} <= {chart["name"] for chart in found["charts"]}
    assert "charts" not in run_state(read_run(str(run)), found["version"])
