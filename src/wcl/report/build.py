"""`wcl report`: one page that says whether runs worked, and shows what they learned."""

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from wcl.config import PretrainConfig, ReportConfig
from wcl.data import Source, absolute, first_classes, open_source
from wcl.methods import method_settings
from wcl.models.encoder import Encoder, load
from wcl.report.charts import charts
from wcl.report.groups import RunGroups, run_groups
from wcl.report.images import EncodedImages, ReportImages, choose, encode
from wcl.report.maps import maps
from wcl.report.measured import measured
from wcl.report.page import render
from wcl.report.provenance import commands, machine_facts, run_provenance
from wcl.report.runs import Run, read_runs, short
from wcl.report.scores import evaluated, verdicts
from wcl.system.errors import InputError
from wcl.system.files import atomic_write, new_file
from wcl.system.machine import best_device, check_workers, use_threads
from wcl.system.run_folder import RunFolder

_FEWEST, _MOST = 4, 20_000
_LONGEST_NAME = 200  # bytes of a file's name; all file systems take some more


class Data(NamedTuple):
    """The images of a report."""

    spec: str
    source: Source | None
    """Those of the classes that the first run was trained on; None if they are not there."""
    missing: str
    """Why they are not, in a sentence."""
    whole: Source | None = None
    """Those of all classes."""


def write_report(paths: Sequence[str], config: ReportConfig) -> Path:
    """Write the report of one or several runs: the same as `wcl report RUN … --data SRC`.

    Raises:
        InputError: no run, no such data, or a file that cannot be written.
    """
    if not _FEWEST <= config.images <= _MOST:
        raise InputError(f"--images: must be between {_FEWEST} and {_MOST:,}, not {config.images}")
    use_threads(config.threads)
    check_workers(config.num_workers)
    runs = read_runs(paths)
    out = new_file(config.out, (".html",)) if config.out else usual_file(runs)
    _must_be_writable(out)
    content = _content(runs, config, out)
    with atomic_write(out) as unfinished:
        unfinished.write_text(content, encoding="utf-8")
    print(f"wrote {out}, {out.stat().st_size / 2**20:.1f} MB; open it in a browser")
    return out


def usual_file(runs: Sequence[Run]) -> Path:
    """Where a report is written unless the user says otherwise.

    That of several runs has a name of its own: it must not replace the first run's report, nor
    that of other runs. The name of one run beside the first tells it from all others; where names
    do not, a few digits of the runs' places do.
    """
    if len(runs) == 1:
        return RunFolder(runs[0].folder).report
    others = "-".join(re.sub(r"[^\w.]+", "-", run.name).strip("-") for run in runs[1:])
    if len(others.encode()) > _LONGEST_NAME:
        others = f"{len(runs) - 1}-others"
    first, *places = (run.folder.resolve() for run in runs)
    if places != [first.parent / others]:
        digest = hashlib.sha256(b"\0".join(map(os.fsencode, places))).hexdigest()
        others = f"{others}-{digest[:8]}"
    return runs[0].folder / f"report-with-{others}.html"


def _must_be_writable(out: Path) -> None:
    """Raise InputError if no page can be written there: all the work would be for nothing."""
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise InputError(
            f"{out}: cannot be written ({error.strerror}); give another place as --out FILE.html"
        ) from error


def _content(runs: Sequence[Run], config: ReportConfig, out: Path) -> str:
    data = _data(runs, config.data)
    encoders = [_encoder(run, config.device) for run in runs]
    images, encoded, image_notes = _encoded(runs, encoders, data, config)
    if data.source is None:
        scores = evaluated(runs)
    else:
        scores = measured(runs, encoders, data.spec, _classes(runs), config.num_workers)
    names = [run.name for run in runs]
    curves = charts(runs)
    mapped, map_notes = maps(images, encoded, config.seed) if images else ({}, image_notes)
    spec = data.spec if data.source else ""
    curve_notes = about_losses(runs)
    if not curves["charts"]:
        curve_notes = ["There are no curves: no step of training is logged yet."]
    return render(
        "report.html",
        ("charts.js", "map.js", "report.js"),
        {"runs": names, **curves, "map": mapped or None},
        title=f"wcl report: {', '.join(names)}",
        kind="wcl report",
        names=names,
        lead=_lead(runs, data, images),
        verdicts=verdicts(scores, names),
        scores=scores,
        missing=[*image_notes, *_about(runs, data)],
        has_curves=bool(curves["charts"]),
        curve_notes=curve_notes,
        image_notes=image_notes,
        groups=_groups(runs, encoders, images, encoded) if images else [],
        map_notes=map_notes,
        provenance=[run_provenance(run) for run in runs],
        commands=commands(runs, spec, out, bool(config.out), _options(config)),
        machine=machine_facts(),
    )


def _options(config: ReportConfig) -> list[str]:
    """Those of the settings that decide what is shown, where they are not the usual ones."""
    usual = ReportConfig()
    chosen = {name: getattr(config, name) for name in ("images", "seed")}
    return [
        word
        for name, value in chosen.items()
        if value != getattr(usual, name)
        for word in (f"--{name}", str(value))
    ]


def _data(runs: Sequence[Run], given: str) -> Data:
    """The images to show: those that were given, or those that the runs were trained on."""
    specs = list(dict.fromkeys(absolute(run.config.data) for run in runs if run.config))
    if not given and len(specs) > 1:
        listed = " and ".join(map(short, specs))
        raise InputError(f"--data: the runs are of different data, {listed}; say which to show")
    if not given and not specs:
        return Data("", None, "The run does not say what it was trained on; give it as --data.")
    spec = given or specs[0]
    try:
        whole = open_source(spec)
        return Data(spec, first_classes(whole, _classes(runs)), "", whole)
    except InputError as error:
        if given:
            raise
        return Data(spec, None, f"The images that it was trained on are not there: {error}.")


def _classes(runs: Sequence[Run]) -> int:
    """How many classes the first run was trained on; 0 for all."""
    return runs[0].config.classes if runs[0].config else 0


def _encoder(run: Run, device: str) -> Encoder | None:
    if not run.encoder_file.is_file():
        return None
    try:
        encoder = load(run.folder, best_device(device))
    except InputError as error:
        run.missing.append(f"its encoder cannot be read ({error})")
        return None
    epochs = [line["epoch"] for line in run.lines if line.get("kind") == "epoch"]
    if epochs and encoder.description.epoch != epochs[-1]:
        run.missing.append(
            f"the encoder is of epoch {encoder.description.epoch}, its curves are longer: groups, "
            "neighbors, map and scores are of that epoch"
        )
    return encoder


def _encoded(
    runs: Sequence[Run],
    encoders: Sequence[Encoder | None],
    data: Data,
    config: ReportConfig,
) -> tuple[ReportImages | None, list[EncodedImages | None], list[str]]:
    """Return the images to show, what each encoder makes of them, and why some are missing."""
    encoded: list[EncodedImages | None] = [None] * len(encoders)
    if data.source is None:
        return None, encoded, [data.missing]
    if not any(encoders):
        why = "There is no encoder yet, the first epoch has not ended: no groups and no map."
        return None, encoded, [why]
    images = choose(data.source, config.images, config.seed)
    if len(images) < 2:
        return None, encoded, [f"{short(data.spec)}: hardly any of its images can be read."]
    missing = []
    if images.unreadable:
        missing.append(f"{images.unreadable:,} images cannot be read, and are left out.")
    for number, (run, encoder) in enumerate(zip(runs, encoders, strict=True)):
        if encoder is not None:
            loss = _settings(run, encoder).loss
            encoded[number] = encode(encoder, images, loss, config.num_workers)
    return images, encoded, missing


def _groups(
    runs: Sequence[Run],
    encoders: Sequence[Encoder | None],
    images: ReportImages,
    encoded: Sequence[EncodedImages | None],
) -> list[RunGroups | None]:
    """Return the groups of each run; None for one without an encoder."""
    found: list[RunGroups | None] = []
    augmentations: dict[str, str] = {}  # and the first run that has them
    for run, encoder, its in zip(runs, encoders, encoded, strict=True):
        if encoder is None or its is None:
            found.append(None)
            continue
        config = _settings(run, encoder)
        first = augmentations.setdefault(_augmentation(config), run.name)
        found.append(run_groups(encoder, images, its, config, "" if first == run.name else first))
    return found


def _settings(run: Run, encoder: Encoder) -> PretrainConfig:
    """Those of the run; where they are lost, as much of them as the encoder tells."""
    if run.config is not None:
        return run.config
    method = "simclr" if encoder.phi is None else "wcl"
    loss = method_settings(method)()
    return PretrainConfig(image_size=encoder.description.image_size, method=method, loss=loss)


def _augmentation(config: PretrainConfig) -> str:
    return repr((config.image_size, config.augment, config.crops, config.seed))


def _about(runs: Sequence[Run], data: Data) -> list[str]:
    """What a reader must know to read the report."""
    said = [f"{run.name}: {what}." for run in runs for what in run.missing]
    trained = {run.name: absolute(run.config.data) for run in runs if run.config}
    if len(set(trained.values())) > 1:
        each = ", ".join(f"{name} on {short(spec)}" for name, spec in trained.items())
        said.append(
            f"The runs were trained on different data, so their curves compare badly: {each}."
        )
    elif data.source is not None and absolute(data.spec) not in {*trained.values()}:
        said += [f"It was trained on {short(spec)}." for spec in set(trained.values())]
    return said


def about_losses(runs: Sequence[Run]) -> list[str]:
    """A loss is lower by itself the fewer images an image is told from."""
    batches = {run.config.batch_size for run in runs if run.config}
    if len(batches) < 2:
        return []
    listed = " and ".join(f"{batch:,}" for batch in sorted(batches))
    return [f"Their batches are of {listed} images: losses and groups of them do not compare."]


def _lead(runs: Sequence[Run], data: Data, images: ReportImages | None) -> str:
    """What was trained on how many images, and how many the page shows."""
    methods = [run.config.method if run.config else "unknown method" for run in runs]
    said = f"{' and '.join(dict.fromkeys(methods))} on {short(data.spec)}" if data.spec else ""
    if data.source is None or data.whole is None:
        return said
    there, shown_of = len(data.whole), len(data.source)
    found = (_trained_on(run, data.spec, data.whole) for run in runs)
    counts = [count for count in found if count is not None]
    if len(counts) < len(runs):
        said, them = f"{said}: {shown_of:,} images", shown_of
    elif len(set(counts)) == 1:
        some = "all" if counts[0] == there else f"{counts[0]:,} of"
        said, them = f"{said}: trained on {some} its {there:,} images", counts[0]
    else:
        each = [f"{count:,} ({run.name})" for run, count in zip(runs, counts, strict=True)]
        said, them = f"{said}: trained on {' and '.join(each)} of its {there:,} images", there
    if images is None:
        return said
    some = f"{len(images):,}" if len(images) < shown_of else "all"
    return f"{said}; {some} of {'them' if them == shown_of else f'the {shown_of:,}'} are shown here"


def _trained_on(run: Run, spec: str, whole: Source) -> int | None:
    """How many of these images a run was trained on; None if on others, or if it does not say."""
    if run.config is None or absolute(run.config.data) != absolute(spec):
        return None
    try:
        count = len(first_classes(whole, run.config.classes))
    except InputError:  # the data are others by now
        return None
    return min(run.config.limit or count, count)
