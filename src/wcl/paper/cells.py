"""Running a cell: its pretraining, which goes on where it was stopped, and its measure, once."""

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig, ReproduceConfig, flat
from wcl.config.layering import settings
from wcl.methods import method_settings
from wcl.paper.tables import Cell, Measure, Run
from wcl.system.errors import InputError, RunError
from wcl.system.files import atomic_write, holds_files
from wcl.system.paths import expanded
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_lines import is_number, read_metrics

# Settings that change where and how fast a run is made, but not what comes out.
_NOT_OF_THE_RESULT = {"out", "device", "devices", "threads", "num_workers"}
_MARK = "reproduce.json"
_DIGITS = 10  # of a hash in a name


def settings_of(run: Run, seed: int, data: str, config: ReproduceConfig) -> PretrainConfig:
    """The settings of a run, but for the folder."""
    changes: dict[str, Any] = {
        "precision": config.precision,
        "micro_batch_size": config.micro_batch_size,
        "device": config.device,
        "devices": config.devices,
        "threads": config.threads,
        "num_workers": config.num_workers,
        **run.changes,
    }
    parsed = _parsed(_recipe_of(run), tuple(changes.items()))
    return replace(parsed, epochs=run.epochs, seed=seed, data=data)


def _recipe_of(run: Run) -> str:
    return run.recipe + ("-crops" if run.crops else "")


@cache  # it takes a quarter of a second, and every cell asks for it many times
def _parsed(recipe: str, changes: tuple[tuple[str, Any], ...]) -> PretrainConfig:
    return settings(recipe, dict(changes), method_settings)


@dataclass(frozen=True)
class ResultStore:
    """The folder that everything is made in, and with what.

    Cells that have a run in common share it, whichever tables they are of.
    """

    folder: Path
    config: ReproduceConfig
    sources: Mapping[str, str]
    """Where each data set is."""

    def run_folder(self, run: Run, seed: int) -> Path:
        """The folder of a run; another one if a setting is another."""
        provenance = settings_of(run, seed, self.sources[run.data], self.config)
        defaults = flat(asdict(provenance.defaults()))
        changed = {
            name: value
            for name, value in flat(asdict(provenance)).items()
            # Not those at their defaults: a later version may have more of them.
            if value != defaults[name] and name not in _NOT_OF_THE_RESULT
        }
        return (
            self.folder / "runs" / f"{run.recipe}-{provenance.method}-{_hash(changed)}-seed{seed}"
        )

    def result_file(self, cell: Cell, seed: int) -> Path:
        """Where the figures of a cell are kept; another file if a setting is another."""
        measure, run = cell.measure, self.run_folder(cell.run, seed)
        about: dict[str, Any] = {"options": dict(measure.options)}
        about["data"] = self.sources.get(measure.data, "")
        if measure.against is not None:
            about["against"] = self.run_folder(measure.against, seed).name
        return self.folder / "results" / f"{run.name}-{measure.protocol}-{_hash(about)}.json"

    def found(self, cell: Cell, seed: int) -> dict[str, float] | None:
        """The figures of a cell by their names, if it is done."""
        file = self.result_file(cell, seed)
        try:
            figures = json.loads(file.read_text())["figures"]
            # A measure need not have all of them: of some k there may be too few images.
            found = {f.key: figures[f.key] for f in cell.figures if f.key in figures}
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None  # not there, or damaged: made again
        return found if found and all(map(is_number, found.values())) else None

    def make(self, cell: Cell, seed: int) -> bool:
        """Train and measure, as far as that is not done; whether it came to its end."""
        if self.found(cell, seed) is not None:
            return True
        runs = [run for run in (cell.measure.against, cell.run) if run is not None]
        if not all(self._train(run, seed) for run in runs):
            return False
        figures, details = self._measure(cell, seed)
        run = self.run_folder(cell.run, seed)
        content = {"row": cell.row, "run": run.name, "figures": figures, "details": details}
        with atomic_write(self.result_file(cell, seed)) as unfinished:
            unfinished.write_text(json.dumps(content, indent=1) + "\n")
        return True

    def _train(self, run: Run, seed: int) -> bool:
        from wcl.training import loop as train

        folder = RunFolder(self.run_folder(run, seed))
        config = settings_of(run, seed, self.sources[run.data], self.config)
        config = replace(config, out=str(folder.path))
        if _is_finished(folder.encoder, config.epochs):
            _must_say(folder.config, config)
            return True
        return train.run(config, folder.config.exists(), _recipe_of(run), part_of_more=True)

    def _measure(self, cell: Cell, seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        run, measure = self.run_folder(cell.run, seed), cell.measure
        if measure.protocol == "time":
            return {"seconds": seconds_of_an_epoch(run)}, {}
        from wcl.models.encoder import load
        from wcl.system.machine import best_device

        encoder = load(run, best_device(self.config.device))
        if measure.protocol == "few_labels":
            from wcl.apps.demo import accuracies

            labels = ("1", "3", "10", "all")
            return dict(zip(labels, (100 * a for a in accuracies(encoder)), strict=True)), {}
        from wcl.evaluation import evaluate

        result = evaluate(encoder, measure.protocol, **self._options(cell, seed)).as_dict()
        return figures_of(measure, result), result

    def _options(self, cell: Cell, seed: int) -> dict[str, Any]:
        measure = cell.measure
        of_run = settings_of(cell.run, seed, "", self.config)
        options: dict[str, Any] = {
            "data": self.sources[measure.data or cell.run.data],
            "classes": 0 if measure.data else of_run.classes,
            "device": of_run.device,
            "threads": of_run.threads,
            "num_workers": of_run.num_workers,
            **measure.options,
        }
        if measure.protocol == "project":
            picture = self.folder / "maps" / f"{self.result_file(cell, seed).stem}.png"
            for left_over in (picture, picture.with_suffix(".csv")):
                left_over.unlink(missing_ok=True)  # of an evaluation that was stopped
            options["out"] = str(picture)
            if measure.against is not None:
                options["against"] = str(self.run_folder(measure.against, seed))
        return options


def open_result_store(config: ReproduceConfig) -> Path:
    """The folder of `--out`, made if it is not there.

    Raises:
        InputError: it holds something else, or cannot be written to.
    """
    folder = expanded(config.out)
    try:
        if not (folder / _MARK).exists():
            if folder.exists() and (not folder.is_dir() or holds_files(folder)):
                raise InputError(
                    f"{config.out}: holds other things; choose a new folder with --out"
                )
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / _MARK) as unfinished:
                unfinished.write_text(json.dumps({"made by": "wcl reproduce"}) + "\n")
        for part in ("data", "runs", "results", "maps"):
            (folder / part).mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{config.out}: cannot be written to ({error.strerror})") from error
    return folder


def figures_of(measure: Measure, result: dict[str, Any]) -> dict[str, float]:
    """The figures of an evaluation in the paper's units: shares in percent."""
    if measure.protocol == "lowshot":
        return {str(row["k"]): 100 * row["mean"] for row in result["rows"]}
    if measure.protocol == "project":
        return {name: value for name, value in result["rows"][0].items() if name != "name"}
    return {name: 100 * result[name] for name in ("top1", "top5")}


def seconds_of_an_epoch(run: Path) -> float:
    """The median over a run's epochs, with the search for neighbors.

    Raises:
        RunError: the run does not say it.
    """
    metrics = RunFolder(run).metrics
    parts = [
        (line.get("seconds"), line.get("search_seconds", 0))
        for line in read_metrics(metrics)
        if line.get("kind") == "epoch"
    ]
    seconds = [sum(times) for times in parts if all(map(is_number, times))]
    if not seconds or not (median := statistics.median(seconds)) > 0:
        raise RunError(f"{metrics}: says no time of an epoch; remove {run} to make it again")
    return float(median)


def _is_finished(encoder: Path, epochs: int) -> bool:
    from wcl.models.encoder import load

    return encoder.exists() and load(encoder).description.epoch == epochs


def _must_say(written: Path, config: PretrainConfig) -> None:
    """Raise InputError if the settings that a finished run wrote down are others."""
    from wcl.training.checkpoint import must_match, read_config

    try:
        must_match(config, read_config(written), written)
    except InputError as error:
        raise InputError(
            f"{written.parent}: is not the run of its name; remove it to have it made again"
        ) from error


def _hash(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
