"""The live page: its content, and the state of a run that it asks for again and again."""

from pathlib import Path
from typing import Any

from wcl.report.charts import charts
from wcl.report.page import render
from wcl.report.provenance import commands, evaluation_command, run_provenance
from wcl.report.runs import Run, shortened
from wcl.report.scores import evaluated, verdicts
from wcl.report.trainer import trainer
from wcl.system.run_folder import RunFolder
from wcl.system.units import duration
from wcl.training.provenance import shell_command

_SCRIPTS = ("charts.js", "watch.js")
_RECENT = 5  # epochs from which the remaining time is estimated


def run_page(run: Run) -> str:
    """Return the page of a run."""
    has_encoder = run.files.encoder.is_file()
    scores = evaluated([run])
    notes = [*scores.notes]
    if run.evaluation is None and has_encoder:
        command = evaluation_command(run, run.config.data)
        notes.append(f"If the images have labels, `{command}` evaluates the run.")
    return render(
        "watch.html",
        _SCRIPTS,
        {"page": _page_version(run.files, not run.is_unfinished)},
        live=True,
        title=f"wcl watch: {run.name}",
        kind="wcl watch",
        names=[run.name],
        lead=f"{run.config.method} on {shortened(run.config.data)}",
        verdicts=verdicts(scores, [run.name]),
        unlabeled={},
        scores=scores,
        notes=notes,
        has_curves=True,
        curve_notes=[],
        has_encoder=has_encoder,
        report_command=shell_command("wcl", "report", shortened(run.folder)),
        provenance=[run_provenance(run)],
        commands=commands([run], run.config.data),
        machine=[],
    )


def waiting_page(folder: Path) -> str:
    """Return the page of a run that has not started."""
    name = folder.absolute().name
    return render(
        "waiting.html",
        _SCRIPTS,
        {"page": _page_version(RunFolder(folder), False)},
        live=True,
        title=f"wcl watch: waiting for {name}",
        kind="wcl watch",
        names=[name],
        lead="",
        command=f"wcl pretrain … {shell_command('--out', shortened(folder))}",
    )


def run_state(run: Run, version: str = "") -> dict[str, Any]:
    """Return how far a run is, and its curves unless the page has those of this version."""
    training, pid = trainer(run.folder)
    now = str(len(run.lines))
    state: dict[str, Any] = {
        "page": _page_version(run.files, not run.is_unfinished),
        "status": _status(run, training),
        "training": training,
        "stoppable": pid is not None and run.is_unfinished,
        "progress": run.epochs_done / run.config.epochs,
        "version": now,
        "neighbors": _modified(run.files.neighbors),
    }
    if now != version:
        state |= {"runs": [run.name], **charts([run])}
    return state


def waiting_state(folder: Path) -> dict[str, Any]:
    """Return the state of a run that has not started."""
    return {
        "page": _page_version(RunFolder(folder), False),
        "status": "no run here yet; this page shows it as soon as it starts",
    }


def _status(run: Run, training: bool) -> str:
    planned, done, epochs = run.config.epochs, run.epochs_done, run.epochs[-_RECENT:]
    if run.lines:
        last = run.lines[-1]
        status = f"epoch {last['epoch']} of {planned}, step {last['step']:,}"
    else:
        status = "nothing is logged yet"
        if training:
            status += f"; the first metrics come after {run.config.log.every} steps or one epoch"
    if not run.is_unfinished:
        return f"finished: {done} epochs, {run.lines[-1]['step']:,} steps"
    if not training:
        command = shell_command("wcl", "pretrain", "--out", shortened(run.folder), "--resume")
        return f"{status}; not training. Continue with: {command}"
    if epochs:
        seconds = sum(line["seconds"] for line in epochs) / len(epochs)
        status += f", about {duration(seconds * (planned - done))} left"
    return status


def _page_version(files: RunFolder, finished: bool) -> str:
    """Return what the page depends on besides curves; when it changes, the page reloads."""
    times = _modified(files.config), _modified(files.evaluation)
    return f"{files.is_run} {files.encoder.is_file()} {finished} {times}"


def _modified(path: Path) -> float:
    """Return when a file was last written; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
