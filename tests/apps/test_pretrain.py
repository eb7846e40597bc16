"""The verdict at the end of `wcl pretrain`."""

from pathlib import Path

import pytest

from runs import TINY, assert_same_run, tiny_run
from wcl.apps.pretrain import run_with_verdict
from wcl.config.layering import settings
from wcl.methods import method_settings


def test_a_finished_run_ends_with_a_verdict_that_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tiny_run(tmp_path / "plain")
    assert "long enough?" not in capsys.readouterr().err
    judged = tmp_path / "judged"
    config = settings("digits", {**TINY, "out": str(judged)}, method_settings)
    assert run_with_verdict(config, False, "digits")
    printed = capsys.readouterr().err
    assert "Is it healthy?" in printed and "Is it better than no training?" in printed
    assert "Was it trained long enough? No. 8 steps are few" in printed
    assert printed.count("\nNext: ") == 1
    assert_same_run(plain, judged)
    assert run_with_verdict(config, True, "digits")  # nothing was left to train
    assert "long enough?" not in capsys.readouterr().err
