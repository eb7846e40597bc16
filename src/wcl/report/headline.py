"""The data of a report, and what its reader must know about them first."""

from collections.abc import Sequence
from typing import NamedTuple

from wcl.data import Source, absolute, first_classes, open_source
from wcl.evaluation.comparison import Verdict
from wcl.report.images import ReportImages
from wcl.report.runs import Run, shortened
from wcl.system.errors import InputError


class ReportData(NamedTuple):
    """The data of a report."""

    spec: str
    problem: str = ""
    """Why the images cannot be shown; empty if they can."""
    source: Source | None = None
    """Images of the classes that the first run was trained on."""
    everything: Source | None = None
    """Images of all classes."""


def open_data(runs: Sequence[Run], given: str) -> ReportData:
    """Open the given data, or those that the runs were trained on.

    Raises:
        InputError: the given data cannot be opened, or the runs have different data.
    """
    specs = list(dict.fromkeys(absolute(run.config.data) for run in runs if not run.encoder))
    if not given and not specs:
        raise InputError(f"--data: name the images to show; {runs[0].argument} has none")
    if not given and len(specs) > 1:
        listed = " and ".join(map(shortened, specs))
        raise InputError(
            f"--data: the runs were trained on different data, {listed}; choose which to show"
        )
    spec = given or specs[0]
    try:
        everything = open_source(spec)
        source = first_classes(everything, runs[0].config.classes)
        return ReportData(spec, "", source, everything)
    except InputError as error:
        if given:
            raise
        return ReportData(spec, f"The training images cannot be opened: {error}.")


def headline(runs: Sequence[Run], data: ReportData, images: ReportImages | None) -> str:
    """Return methods and data, and how many images were used for training and are shown."""
    methods = " and ".join(
        dict.fromkeys(f"{run.name} as it is" if run.encoder else run.config.method for run in runs)
    )
    line = f"{methods} on {shortened(data.spec)}"
    if any(run.is_unfinished for run in runs):
        line += ", unfinished"
    if data.everything is None:
        return line
    total = len(data.everything)
    runs = [run for run in runs if run.encoder is None]
    trained_elsewhere = any(absolute(run.config.data) != absolute(data.spec) for run in runs)
    counts = [] if trained_elsewhere else [_training_images(run, data.everything) for run in runs]
    if trained_elsewhere or not runs:
        line += f": {total:,} images"
    elif len(set(counts)) == 1:
        some = "all" if counts[0] == total else f"{counts[0]:,} of"
        line += f": trained on {some} {total:,} images"
    else:
        each = [f"{count:,} ({run.name})" for run, count in zip(runs, counts, strict=True)]
        line += f": trained on {' and '.join(each)} of {total:,} images"
    return f"{line}; {len(images):,} are shown here" if images else line


def _training_images(run: Run, everything: Source) -> int:
    """Return how many images a run with these data is trained on."""
    count = len(first_classes(everything, run.config.classes))
    return min(run.config.limit or count, count)


def unfinished(runs: Sequence[Run]) -> list[Verdict]:
    """Return that the scores of a run are not final, for each run that could go on."""
    return [
        Verdict(
            "Unfinished",
            f"“{run.name}” has been trained for {run.epochs_done:,} of {run.config.epochs:,} epochs"
            f"{'; its scores may still change' if run.epochs_done else ''}.",
        )
        for run in runs
        if run.is_unfinished
    ]


def data_notes(runs: Sequence[Run], data: ReportData) -> list[str]:
    """Return a note if the runs were trained on different data, or on others than are shown."""
    trained = {run.name: absolute(run.config.data) for run in runs if run.encoder is None}
    specs = {*trained.values()}
    if len(specs) > 1:
        each = ", ".join(f"{name} on {shortened(spec)}" for name, spec in trained.items())
        return [f"The runs were trained on different data, so their curves do not compare: {each}."]
    if specs and specs != {absolute(data.spec)}:
        return [f"Trained on {shortened(specs.pop())}."]
    return []


def loss_notes(runs: Sequence[Run]) -> list[str]:
    """Warn of different batch sizes: a loss is lower if there are fewer images to tell apart."""
    batches = sorted({run.config.batch_size for run in runs if run.encoder is None})
    if len(batches) < 2:
        return []
    sizes = " and ".join(f"{size:,}" for size in batches)
    return [f"The batch sizes differ ({sizes}), so losses and groups do not compare."]
