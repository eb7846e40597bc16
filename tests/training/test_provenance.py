"""provenance.json: how a run was trained, session by session, and what it leaves out."""

import getpass
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from images import flat_folder, photo_folder
from runs import photo_run, stopped_after, tiny_run
from wcl import __version__
from wcl.cli import run_command
from wcl.training import setup
from wcl.training.provenance import add_session, current_session, read_sessions, resizer_before

WORDS = ["--limit", "128", "--batch_size", "32", "--epochs", "1", "--log.tensorboard=false"]
WORDS += ["--model.head_hidden_dim=32", "--model.head_out_dim=16", "--threads", "1"]


def from_shell(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command as from a shell."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/wcl", *words])
    return run_command(words)


def test_a_run_says_how_it_was_made_and_not_where_or_by_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    out = tmp_path / "my runs" / "a"
    assert from_shell(["pretrain", *WORDS, "--data=digits", "--out", str(out)], monkeypatch) == 0
    (session,) = read_sessions(out / "provenance.json")
    assert (session.recipe, session.config, session.step) == ("digits", "", 0)
    assert session.command == f"wcl pretrain {' '.join(WORDS)} --data=digits --out ~'/my runs/a'"
    assert session.versions["wcl"] == __version__
    assert session.versions["torch"] == torch.__version__
    assert session.versions["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert "resize" not in session.machine  # digits are not resized by worker processes
    assert session.machine["device"] == "cpu" and int(session.machine["cores"]) >= 1
    text = (out / "provenance.json").read_text()
    for name in (str(tmp_path), socket.gethostname(), getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text), name


def test_the_file_of_settings_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("data: digits\nimage_size: 32\nmodel: {backbone: conv_tiny, stem: native}\n")
    for name, given in (("a", [f"--config={file}"]), ("b", ["--config", str(file)])):
        words = ["pretrain", *given, *WORDS, "--out", str(tmp_path / name)]
        assert from_shell(words, monkeypatch) == 0
        (session,) = read_sessions(tmp_path / name / "provenance.json")
        assert (session.recipe, session.config) == ("", "mine.yaml")


def test_another_program_is_not_written_down_but_its_recipe_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--password=secret"])
    photos = flat_folder(tmp_path / "photos", 16)
    runs = {
        "digits": tiny_run(tmp_path / "digits", epochs=1),
        "folder": photo_run(photos, tmp_path / "folder", epochs=1, num_workers=0),
    }
    for recipe, run in runs.items():
        (session,) = read_sessions(run / "provenance.json")
        assert (session.recipe, session.command) == (recipe, "")
        assert "secret" not in (run / "provenance.json").read_text()


def test_every_session_is_added_and_a_finished_run_has_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, words = tmp_path / "run", ["pretrain", "--resume", f"--out={tmp_path / 'run'}"]
    with stopped_after(3, monkeypatch):
        tiny_run(run)
    for _ in range(2):
        assert from_shell(words, monkeypatch) == 0
        sessions = read_sessions(run / "provenance.json")
        assert [(one.step, one.recipe) for one in sessions] == [(0, "digits"), (3, "")]
    assert sessions[1].command == f"wcl pretrain --resume --out={run}"


@pytest.mark.parametrize(("before", "now"), [("PIL", "torch"), ("torch", "PIL"), ("PIL", "PIL")])
def test_a_resumed_run_logs_if_its_photos_are_resized_in_another_way(
    before: str,
    now: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    photos, run = photo_folder(tmp_path / "photos", each=8), tmp_path / "run"
    monkeypatch.setattr(setup, "RESIZER", before)
    with stopped_after(1, monkeypatch):
        photo_run(photos, run, epochs=1, num_workers=0)
    monkeypatch.setattr(setup, "RESIZER", now)
    capsys.readouterr()
    assert from_shell(["pretrain", "--resume", f"--out={run}"], monkeypatch) == 0
    sessions = read_sessions(run / "provenance.json")
    assert [one.machine["resize"] for one in sessions] == [before, now]
    assert (f"{now} resizes photos" in capsys.readouterr().err) == (before != now)


def test_sessions_that_do_not_name_what_resizes_photos_used_pil(tmp_path: Path) -> None:
    path = tmp_path / "provenance.json"
    assert resizer_before(path) == ""
    add_session(path, current_session("folder", 0, "cpu", 1), resumed=False)
    assert resizer_before(path) == "PIL"


def test_what_is_left_of_another_run_is_not_this_ones(tmp_path: Path) -> None:
    add_session(tmp_path / "provenance.json", current_session("folder", 0, "cpu", 1), resumed=False)
    tiny_run(tmp_path, epochs=1)
    assert [one.recipe for one in read_sessions(tmp_path / "provenance.json")] == ["digits"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[{", "[[]]", "[1]", '[{"began": ""}]', "null", '"text"', "\x00"],
)
def test_a_damaged_file_says_nothing_and_the_run_goes_on_with_a_new_one(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "provenance.json"
    path.write_text(content)
    assert read_sessions(path) == []
    session = current_session("digits", 5, "cpu", 2)
    add_session(path, session, resumed=True)
    assert read_sessions(path) == [session]
    assert session.machine["processes"] == "2"


def test_what_was_written_before_survives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "provenance.json"
    add_session(path, current_session("digits", 0, "cpu", 1), resumed=False)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space left"):
            add_session(path, current_session("", 8, "cpu", 1), resumed=True)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["provenance.json"]
