"""Verdicts on runs that have no scores, which need labels."""

from collections.abc import Sequence

from wcl.data import first_classes, open_split
from wcl.evaluation.unlabeled import quick_verdict, run_verdict
from wcl.evaluation.verdict import Verdict
from wcl.models.encoder import Encoder
from wcl.report.headline import ReportData
from wcl.report.runs import Run
from wcl.report.scores import Scores
from wcl.system.errors import InputError, RunError


def unlabeled_verdicts(
    runs: Sequence[Run],
    encoders: Sequence[Encoder | None],
    data: ReportData,
    scores: Scores,
    num_workers: int,
) -> dict[int, Verdict]:
    """Return a verdict on each run with an encoder and without scores, by the run's number."""
    return {
        number: _verdict(run, encoder, data, num_workers)
        for number, (run, encoder) in enumerate(zip(runs, encoders, strict=True))
        if encoder is not None and not scores.has_run(number)
    }


def _verdict(run: Run, encoder: Encoder, data: ReportData, num_workers: int) -> Verdict:
    """Measure on the report's images if there are any; the run's metrics count anyway."""
    if data.source is None:
        return run_verdict(encoder, {})
    try:
        source = first_classes(open_split(data.spec, "all")[-1], run.config.classes)
        return quick_verdict(encoder, source, num_workers)
    except (InputError, RunError):  # other parts of the report say why
        return run_verdict(encoder, {})
