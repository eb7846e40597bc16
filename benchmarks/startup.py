"""Start of commands: seconds to the first step or figure, as multiples of `import torch`."""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from PIL import Image

from benchmarks.timing import medians
from wcl.system.run_folder import RunFolder

_POLL = 0.005  # seconds
_ONE_EPOCH = ["pretrain", "digits", "--epochs", "1"]


def measure(rounds: int) -> dict[str, float]:
    """Return how many times as long as importing torch commands take, with warm file caches."""
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder, "images")
        images.mkdir()
        for number in range(8):
            Image.new("L", (32, 32), 30 * number).save(images / f"{number}.png")
        run = f"{folder}/run"
        _wcl(*_ONE_EPOCH, "--out", run)
        calls = {
            "torch": partial(_finish, ["-c", "import torch"]),
            "first_step": partial(_first_step, Path(folder)),
            "one_epoch": partial(_one_epoch, Path(folder)),
            "knn": partial(_wcl, "eval", "knn", run, "--json"),
            "embed": partial(_embed, run, images),
            "search": partial(_search, run, images),
        }
        seconds = medians(calls, rounds)
    torch_seconds = seconds.pop("torch")
    return {f"{name}_over_torch": value / torch_seconds for name, value in seconds.items()}


def _first_step(folder: Path) -> None:
    """Start a run and stop it when the metrics of its first step are written."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        words = [*_ONE_EPOCH, "--log.every", "1", "--out", out]
        process = subprocess.Popen([sys.executable, "-m", "wcl", *words], stderr=subprocess.DEVNULL)
        metrics = RunFolder(out).metrics
        while process.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
            time.sleep(_POLL)
        process.kill()
        process.wait()


def _one_epoch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        _wcl(*_ONE_EPOCH, "--out", out)


def _embed(run: str, images: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _wcl("embed", run, "--data", str(images), "--out", f"{folder}/features.npy")


def _search(run: str, images: Path) -> None:
    query = str(images / "0.png")
    _wcl("search", run, "--data", str(images), "--query", query, "--json")  # without a picture


def _wcl(*words: str) -> None:
    _finish(["-m", "wcl", *words])


def _finish(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
