"""metrics.jsonl when a run goes on: no line of it is lost, and nothing else in it is in the way."""

from pathlib import Path

import pytest

from runs import metrics, tiny_run
from wcl.training.metrics_file import drop_lines_after

_FOREIGN = {
    "a list": b"[1]",
    "a number": b"5",
    "null": b"null",
    "no step": b'{"loss": 1.0}',
    "a step of text": b'{"step": "a"}',
    "a step of nothing": b'{"step": null}',
    "a step that is not a number": b'{"step": NaN}',
    "a step beyond floats": b'{"step": 1' + b"0" * 400 + b"}",
    "an epoch of text": b'{"kind": "epoch", "step": 1, "epoch": "a"}',
    "no text": b"\xff\xfe",
    "zeros": b"\0\0\0\0",
    "nested without end": b"[" * 100_000,
    "cut short": b'{"step": 1, "lo',
    "empty": b"",
}


@pytest.mark.parametrize("foreign", _FOREIGN.values(), ids=_FOREIGN.keys())
def test_what_no_run_writes_is_dropped_and_the_lines_around_it_stay(
    foreign: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    before = b'{"kind": "step", "step": 1, "epoch": 1, "loss": 2.50}\n'
    after = b'{"kind": "epoch",  "step": 2.0, "epoch": 1, "note": "caf\xc3\xa9"}\n'
    again = b'{"kind": "step", "step": 3, "epoch": 2}\n'
    path.write_bytes(before + foreign + b"\n" + after + again)
    drop_lines_after(path, 2)
    assert path.read_bytes() == before + after


def test_a_run_goes_on_though_something_wrote_into_its_metrics(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", epochs=1)
    lines = metrics(run)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\n".join(_FOREIGN.values()) + b"\n")
    tiny_run(run, epochs=1, resume=True)
    assert metrics(run) == lines
