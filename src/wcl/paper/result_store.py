"""The folder of all runs and results, where each cell is pretrained and measured once."""

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig, ReproduceConfig, flat
from wcl.config.layering import settings
from wcl.data import limited, open_splits
from wcl.methods import method_settings
from wcl.paper.label_lists import LabelList
from wcl.paper.pairs import pair_quality
from wcl.paper.sources import images_per_epoch
from wcl.paper.tables import Cell, Measure, Run
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, holds_files
from wcl.system.machine import best_device, use_threads
from wcl.system.paths import expanded
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

# Settings that do not change the result.
_IRRELEVANT = {"out", "device", "devices", "threads", "num_workers"}
_MARKER = "reproduce.json"
_HASH_LENGTH = 10


def settings_of(run: Run, seed: int, data: str, config: ReproduceConfig) -> PretrainConfig:
    """Return the settings of a run, except for its folder."""
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


@cache  # takes a quarter of a second and is needed many times per cell
def _parsed(recipe: str, changes: tuple[tuple[str, Any], ...]) -> PretrainConfig:
    return settings(recipe, dict(changes), method_settings)


@dataclass(frozen=True)
class ResultStore:
    """The folder of all runs and results. Cells with the same run share it, across tables too."""

    folder: Path
    config: ReproduceConfig
    sources: Mapping[str, str]
    """The source of each data set."""
    lists: Mapping[str, LabelList] = field(default_factory=dict)
    """Lists of labeled images that replace draws, by the share that is drawn."""

    def run_folder(self, run: Run, seed: int) -> Path:
        """Return the folder of a run; its name depends on all settings that change the result."""
        run = self._with_epochs(run)
        config = settings_of(run, seed, self.sources[run.data], self.config)
        defaults = flat(asdict(config.defaults()))
        changed = {
            name: value
            for name, value in flat(asdict(config)).items()
            # Without defaults, so that settings added later do not change the name.
            if value != defaults[name] and name not in _IRRELEVANT
        }
        method = config.method.rpartition(":")[2]  # of package.module:Class
        name = f"{run.recipe}-{method}-{_hash(changed)}-seed{seed}"
        return self.folder / "runs" / name

    def result_file(self, cell: Cell, seed: int) -> Path:
        """Return the file of a cell's result; its name depends on run and measure."""
        measure = cell.measure
        if measure.protocol == "cost":
            seed = 0  # the cost does not depend on it
        run = self.run_folder(cell.run, seed)
        key: dict[str, Any] = {"options": dict(measure.options)}
        key["data"] = self.sources.get(measure.data, "")
        if found := self._list_of(measure):
            key["labels"] = found.sha256
        if measure.against is not None:
            key["against"] = self.run_folder(measure.against, seed).name
        return self.folder / "results" / f"{run.name}-{measure.protocol}-{_hash(key)}.json"

    def _list_of(self, measure: Measure) -> LabelList | None:
        return self.lists.get(measure.options.get("labels", ""))

    def _with_epochs(self, run: Run) -> Run:
        """Return a run with as many epochs as fit into its time, once its cost is measured."""
        epochs = run.epochs
        if run.time_of is not None and (file := self._cost_file(run)).exists():
            epochs = max(1, round(epochs / _read_figures(file)["time"]))
        return replace(run, epochs=epochs, time_of=None)

    def _cost_file(self, run: Run) -> Path:
        """Return the file of the cost of a run, which its number of epochs depends on."""
        return self.result_file(_cost_cell(run), 0)

    def figures(self, cell: Cell, seed: int) -> dict[str, float] | None:
        """Return the figures of a cell by their keys; None if it is not done."""
        if cell.run.time_of is not None and not self._cost_file(cell.run).exists():
            return None
        file = self.result_file(cell, seed)
        if not file.exists():
            return None
        figures = _read_figures(file)
        # Figures may be missing: with few images, the larger k of `lowshot`.
        return {f.key: figures[f.key] for f in cell.figures if f.key in figures}

    def make(self, cell: Cell, seed: int) -> bool:
        """Train and measure a cell unless it is done; return False if training was stopped."""
        if self.figures(cell, seed) is not None:
            return True
        if cell.run.time_of is not None:
            self.make(_cost_cell(cell.run), 0)
        runs = [run for run in (cell.measure.against, cell.run) if run is not None]
        if cell.measure.protocol != "cost" and not all(self._train(run, seed) for run in runs):
            return False
        figures, details = self._measure(cell, seed)
        run = self.run_folder(cell.run, seed)
        content = {"row": cell.row, "run": run.name, "figures": figures, "details": details}
        with atomic_write(self.result_file(cell, seed)) as unfinished:
            unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return True

    def _train(self, run: Run, seed: int) -> bool:
        from wcl.apps import pretrain

        run = self._with_epochs(run)
        folder = RunFolder(self.run_folder(run, seed))
        config = settings_of(run, seed, self.sources[run.data], self.config)
        config = replace(config, out=str(folder.path))
        if _is_finished(folder.encoder, config.epochs):
            return True
        if not run.epochs:
            from wcl.paper.untrained import write_untrained

            write_untrained(config, folder)
            return True
        return pretrain.run(config, folder.config.exists(), _recipe_of(run), quiet=True)

    def _measure(self, cell: Cell, seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        run, measure = self.run_folder(cell.run, seed), cell.measure
        if measure.protocol == "time":
            return {"seconds": seconds_per_epoch(run)}, {}
        if measure.protocol == "pairs":
            return {name: 100 * value for name, value in pair_quality(run).items()}, {}
        if measure.protocol == "cost":
            return self._cost(cell), {}
        from wcl.models.encoder import load

        encoder = load(run, best_device(self.config.device))
        if measure.protocol == "frozen":
            from wcl.paper.frozen import frozen_accuracies

            use_threads(self.config.threads)
            train, test = open_splits(self.sources[cell.run.data])
            train = limited(train, measure.options.get("limit", 0), seed)
            return frozen_accuracies(encoder, train, test), {}
        from wcl.evaluation import evaluate

        options = self._options(cell, seed)
        result = evaluate(encoder, measure.protocol, references=False, **options).as_dict()
        return figures_of(measure, result), result

    def _cost(self, cell: Cell) -> dict[str, float]:
        from wcl.paper.cost import relative_cost

        assert cell.measure.against is not None
        runs = cell.run, cell.measure.against
        config, other = (settings_of(run, 0, "", self.config) for run in runs)
        use_threads(self.config.threads)
        return relative_cost(
            config, other, images_per_epoch(config, cell.run.data, self.config.scale)
        )

    def _options(self, cell: Cell, seed: int) -> dict[str, Any]:
        measure = cell.measure
        config = settings_of(cell.run, seed, "", self.config)
        options: dict[str, Any] = {
            "data": self.sources[measure.data or cell.run.data],
            "classes": 0 if measure.data else config.classes,
            "device": config.device,
            "threads": config.threads,
            "num_workers": config.num_workers,
            **measure.options,
        }
        if found := self._list_of(measure):
            options["labels"] = str(found.path)
        if measure.protocol == "project":
            picture = self.folder / "maps" / f"{self.result_file(cell, seed).stem}.png"
            for file in (picture, picture.with_suffix(".csv")):
                file.unlink(missing_ok=True)  # left by an evaluation that was stopped
            options["out"] = str(picture)
            if measure.against is not None:
                options["against"] = str(self.run_folder(measure.against, seed))
        return options


def _read_figures(file: Path) -> dict[str, float]:
    """Return the figures in the file of a result.

    Raises:
        InputError: the file is damaged.
    """
    try:
        figures = json.loads(file.read_text(encoding="utf-8"))["figures"]
        return {name: float(value) for name, value in figures.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: damaged; delete it, and the cell is measured again") from error


def _cost_cell(run: Run) -> Cell:
    """Return the cell that measures the time of a run relative to the one it gets the time of."""
    return Cell("", replace(run, time_of=None), Measure("cost", against=run.time_of), ())


def open_result_store(config: ReproduceConfig) -> Path:
    """Return the folder of `--out`, created if necessary.

    Raises:
        InputError: it holds other files, or cannot be written to.
    """
    folder = expanded(config.out)
    try:
        if not (folder / _MARKER).exists():
            if folder.exists() and (not folder.is_dir() or holds_files(folder)):
                raise InputError(f"{config.out}: holds other files; choose a new folder with --out")
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / _MARKER) as unfinished:
                unfinished.write_text(
                    json.dumps({"made by": "wcl reproduce"}) + "\n", encoding="utf-8"
                )
        for part in ("data", "runs", "results", "maps"):
            (folder / part).mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{config.out}: cannot be written to ({error.strerror})") from error
    return folder


def figures_of(measure: Measure, result: dict[str, Any]) -> dict[str, float]:
    """Return the figures of an evaluation in the paper's units: fractions in percent."""
    if measure.protocol == "lowshot":
        figures = {str(row["k"]): 100 * row["mean"] for row in result["rows"]}
        best = {f"{row['k']}, best on test": 100 * row["best_on_test"] for row in result["rows"]}
        return figures | best
    if measure.protocol == "project":
        return {name: value for name, value in result["rows"][0].items() if name != "name"}
    return {name: 100 * result[name] for name in ("top1", "top5")}


def seconds_per_epoch(run: Path) -> float:
    """Return the median time of a run's epochs, including the search for neighbors."""
    return statistics.median(
        float(line["seconds"] + line.get("search_seconds", 0))
        for line in read_metrics(RunFolder(run).metrics)
        if line["kind"] == "epoch"
    )


def _is_finished(encoder: Path, epochs: int) -> bool:
    from wcl.models.encoder import load

    return encoder.exists() and load(encoder).description.epoch == epochs


def _hash(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
