"""The data of a report, and what its reader must know about them first."""

from collections.abc import Sequence
from typing import NamedTuple

from wcl.data import Source, absolute, first_classes, open_source
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
    specs = list(dict.fromkeys(absolute(run.config.data) for run in runs if run.config))
    if not given and len(specs) > 1:
        listed = " and ".join(map(shortened, specs))
        raise InputError(
            f"--data: the runs were trained on different data, {listed}; choose which to show"
        )
    if not given and not specs:
        return ReportData("", "The data of this run are unknown; give them with --data.")
    spec = given or specs[0]
    try:
        everything = open_source(spec)
        source = first_classes(everything, class_count(runs))
        return ReportData(spec, "", source, everything)
    except InputError as error:
        if given:
            raise
        return ReportData(spec, f"The training images cannot be opened: {error}.")


def class_count(runs: Sequence[Run]) -> int:
    """Return how many classes the first run was trained on; 0 for all."""
    return runs[0].config.classes if runs[0].config else 0


def headline(runs: Sequence[Run], data: ReportData, images: ReportImages | None) -> str:
    """Return methods and data, and how many images were used for training and are shown."""
    methods = dict.fromkeys(run.config.method if run.config else "unknown method" for run in runs)
    if not data.spec:
        return ""
    line = f"{' and '.join(methods)} on {shortened(data.spec)}"
    if data.source is None or data.everything is None:
        return line
    total = len(data.everything)
    counts = [_training_images(run, data.spec, data.everything) for run in runs]
    if None in counts:
        line += f": {len(data.source):,} images"
    elif len(set(counts)) == 1:
        some = "all" if counts[0] == total else f"{counts[0]:,} of"
        line += f": trained on {some} {total:,} images"
    else:
        each = [f"{count:,} ({run.name})" for run, count in zip(runs, counts, strict=True)]
        line += f": trained on {' and '.join(each)} of {total:,} images"
    return f"{line}; {len(images):,} are shown here" if images else line


def _training_images(run: Run, spec: str, everything: Source) -> int | None:
    """Return how many of these images a run was trained on; None if that is unknown."""
    if run.config is None or absolute(run.config.data) != absolute(spec):
        return None
    try:
        count = len(first_classes(everything, run.config.classes))
    except InputError:  # the data have changed
        return None
    return min(run.config.limit or count, count)


def data_notes(runs: Sequence[Run], data: ReportData) -> list[str]:
    """Return notes on problems of the runs, and on data that differ."""
    notes = [f"{run.name}: {problem}." for run in runs for problem in run.problems]
    trained = {run.name: absolute(run.config.data) for run in runs if run.config}
    if len({*trained.values()}) > 1:
        each = ", ".join(f"{name} on {shortened(spec)}" for name, spec in trained.items())
        notes.append(
            f"The runs were trained on different data, so their curves do not compare: {each}."
        )
    elif data.source is not None and absolute(data.spec) not in trained.values():
        notes += [f"Trained on {shortened(spec)}." for spec in {*trained.values()}]
    return notes


def loss_notes(runs: Sequence[Run]) -> list[str]:
    """Warn of different batch sizes: a loss is lower if there are fewer images to tell apart."""
    batches = sorted({run.config.batch_size for run in runs if run.config})
    if len(batches) < 2:
        return []
    sizes = " and ".join(f"{size:,}" for size in batches)
    return [f"The batch sizes differ ({sizes}), so losses and groups do not compare."]
