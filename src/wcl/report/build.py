"""`wcl report`: write one page about one or several runs."""

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wcl.config import ReportConfig
from wcl.config.bounds import check_bounds
from wcl.data import with_format
from wcl.models.encoder import Encoder, load
from wcl.report.charts import charts
from wcl.report.groups import run_groups
from wcl.report.headline import (
    ReportData,
    data_notes,
    headline,
    loss_notes,
    open_data,
    unfinished,
)
from wcl.report.images import ReportImages, choose, encode
from wcl.report.maps import maps
from wcl.report.page import render
from wcl.report.provenance import commands, machine_facts, run_provenance
from wcl.report.quick_knn import scores_of
from wcl.report.runs import Run, read_runs, shortened
from wcl.report.scores import evaluated, verdicts
from wcl.report.unlabeled import unlabeled_verdicts
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, new_file
from wcl.system.machine import best_device, use_threads

_MAX_NAME = 60  # characters of the names of other runs in the name of a report


def write_report(
    runs: str | Path | Sequence[str | Path], config: ReportConfig | None = None, **options: Any
) -> Path:
    """Write the report of one or several runs: the same as `wcl report RUN … --data SRC`.

    Args:
        runs: the folder of a run, `timm:NAME`, or several of these.
        config: all options of the command.
        options: single options instead, such as `data="photos"` or `out="report.html"`.

    Returns:
        The path of the page.

    Raises:
        InputError: a folder holds no run, the data do not exist, or the page cannot be written.
    """
    config = config or ReportConfig(**options)
    check_bounds(config)
    use_threads(config.threads)
    paths = [runs] if isinstance(runs, str | Path) else runs
    found = read_runs([str(path) for path in paths])
    out = new_file(str(config.out), (".html",)) if config.out else default_file(found)
    _must_be_writable(out)
    page = _page(found, config)
    with atomic_write(out) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    print(f"wrote {out}, {out.stat().st_size / 2**20:.1f} MB; open it in a browser")
    return out


def default_file(runs: Sequence[Run]) -> Path:
    """Return where a report is written by default.

    That of several runs must replace neither the first run's own report nor that of other runs. It
    has the names of the other runs, and a hash of their folders unless there is only one, beside
    the first.
    """
    report = runs[0].files.report
    if len(runs) == 1:
        return report
    others = "-".join(re.sub(r"[^\w.]+", "-", run.name).strip("-") for run in runs[1:])
    others = others[:_MAX_NAME]
    first, *folders = (run.folder.resolve() for run in runs)
    if folders != [first.parent / others]:
        digest = hashlib.sha256(b"\0".join(map(os.fsencode, folders))).hexdigest()
        others = f"{others}-{digest[:8]}"
    return report.with_name(f"{report.stem}-with-{others}{report.suffix}")


def _must_be_writable(out: Path) -> None:
    """Raise InputError if the page cannot be written, before any work is done for it."""
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise InputError(
            f"{out}: cannot be written ({error.strerror}); choose another file with --out FILE.html"
        ) from error


def _page(runs: Sequence[Run], config: ReportConfig) -> str:
    data = open_data(runs, str(config.data))
    encoders = [_load(run, config.device) for run in runs]
    images, image_notes = _choose_images(data, encoders, config)
    groups, map_data, map_notes = [], None, image_notes
    if images is not None:
        encoded = [
            encode(run, encoder, images, config.num_workers) if encoder else None
            for run, encoder in zip(runs, encoders, strict=True)
        ]
        groups = [
            run_groups(run, images, one) if one else None
            for run, one in zip(runs, encoded, strict=True)
        ]
        map_data, map_notes = maps(images, encoded, config.seed)
    scores = evaluated(runs)
    if data.source is not None:
        scores = scores_of(runs, encoders, data.spec, config.num_workers)
    names = [run.name for run in runs]
    curves = charts(runs)
    has_curves = bool(curves["charts"])
    return render(
        "report.html",
        ("charts.js", "map.js", "report.js"),
        {"runs": names, **curves, "map": map_data},
        title=f"wcl report: {', '.join(names)}",
        kind="wcl report",
        names=names,
        lead=headline(runs, data, images),
        verdicts=[*unfinished(runs), *verdicts(scores, names)],
        unlabeled=unlabeled_verdicts(runs, encoders, data, scores, config.num_workers),
        scores=scores,
        notes=[
            *scores.notes,
            *image_notes,
            *_older_encoders(runs, encoders),
            *data_notes(runs, data),
        ],
        has_curves=has_curves,
        curve_notes=loss_notes(runs) if has_curves else ["No curves: nothing is logged yet."],
        image_notes=image_notes,
        groups=groups,
        map_notes=map_notes,
        provenance=[run_provenance(run) for run in runs],
        commands=commands(runs, data.spec, _options(config)),
        machine=machine_facts(),
    )


def _options(config: ReportConfig) -> list[str]:
    """Return the options that decide what is shown, where they are not the defaults."""
    words = []
    for name in ("images", "seed", "out"):
        value = getattr(config, name)
        if value != getattr(ReportConfig, name):
            words += [f"--{name}", shortened(str(value))]
    return words


def _load(run: Run, device: str) -> Encoder | None:
    """Return the encoder of a run; None until its first epoch has ended."""
    if run.encoder is not None:
        return run.encoder.to(best_device(device))
    return load(run.folder, best_device(device)) if run.files.encoder.is_file() else None


def _older_encoders(runs: Sequence[Run], encoders: Sequence[Encoder | None]) -> list[str]:
    """Warn of encoders that are older than the curves."""
    epochs = [encoder and encoder.description.epoch for encoder in encoders]
    return [
        f"{run.name}: the encoder is from epoch {epoch}, but the curves go on to epoch "
        f"{run.epochs_done}; scores, groups, neighbors and map are from epoch {epoch}."
        for run, epoch in zip(runs, epochs, strict=True)
        if epoch is not None and run.epochs_done not in (0, epoch)
    ]


def _choose_images(
    data: ReportData, encoders: Sequence[Encoder | None], config: ReportConfig
) -> tuple[ReportImages | None, list[str]]:
    """Return the images to show, and why some or all are missing."""
    if data.source is None:
        return None, [data.problem]
    if not any(encoders):
        return None, ["No groups and no map: there is no encoder until the first epoch has ended."]
    first = next(encoder for encoder in encoders if encoder is not None).description
    source = with_format(data.source, data.source.channels, first.levels)
    images = choose(source, config.images, config.seed)
    if len(images) < 2:
        return None, [f"{shortened(data.spec)}: hardly any image can be read."]
    unreadable = f"{images.unreadable:,} images cannot be read and are left out."
    return images, [unreadable] if images.unreadable else []
