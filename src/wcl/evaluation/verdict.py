"""The verdict on a run without labels: whether it is healthy, learned anything, and is done.

The figure, its thresholds and the confidence come from `examples/label_free_study.py`, the limit of
changed neighbors from the runs of `examples/adaptation_study.py`; docs state the tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from wcl.config import PretrainConfig
from wcl.methods import find_method
from wcl.ops.diagnostics import COLLAPSED
from wcl.training.advice import few_steps
from wcl.training.provenance import shell_command

FIGURE: Literal["neighbor_agreement"] = "neighbor_agreement"
"""The figure that the verdict uses: of those that predict accuracy, it erred least."""
NEEDED = (FIGURE, "rankme")
"""All label-free figures that the verdict uses."""
# How many times the figure of the untrained network the encoder must have to be better, and not to
# be worse. Pixels are shown only: the study found no threshold for them that holds on all data.
_BETTER, _WORSE = 2.0, 1.2
_CONFIDENCE = "right for 17 of 17 runs that did not set these limits"
# Of the neighbors that pretrained weights find. No figure tells small losses from gains.
_MAX_CHANGED = 0.7
_MIN_RANK = 0.4  # RankMe as a share of that of the untrained network
_MAX_GROUP = 0.25  # share of a batch
_ENOUGH_STEPS = 1000
_LAST_QUARTER = 0.15  # share of the loss's fall from which it still falls
_QUARTERS = 4  # epochs that show how the loss falls
_TYPICAL_BATCH = 256

_QUESTIONS = {
    "untrained": "Is it better than no training?",
    "pretrained": "Is it better than the weights it started from?",
}
_LONG_ENOUGH = "Was it trained long enough?"
_NAMES = {"untrained": "the untrained network", "pixels": "raw pixels"}


class Answer(NamedTuple):
    """The answer to one question, with the measured value and the threshold."""

    question: str
    answer: Literal["yes", "no", "unclear"]
    reason: str


class Verdict(NamedTuple):
    """The answers on a run, and one thing to do next."""

    answers: list[Answer]
    next_step: str

    @property
    def worked(self) -> str:
        """The answer to whether the run worked, as far as that is known without labels."""
        if [each.question for each in self.answers if each.answer == "no"] == [_LONG_ENOUGH]:
            return "Too early to tell"
        given = {answer.answer for answer in self.answers}
        return "No" if "no" in given else "Not clearly" if "unclear" in given else "Probably"


class _Finding(NamedTuple):
    """An answer, and the remedy if it is not yes."""

    answer: Answer
    remedy: str = ""


def verdict(
    figures: Mapping[str, Mapping[str, float]],
    config: PretrainConfig | None = None,
    epochs: Sequence[Mapping[str, Any]] = (),
    run: str = "",
    changed: float | None = None,
    data: str = "SRC",
    labeled: bool = False,
) -> Verdict:
    """Return the verdict on an encoder.

    Args:
        figures: those in `NEEDED` of `encoder` and each baseline; empty if nothing was measured.
        config: settings of its run; None for an encoder that belongs to none.
        epochs: the metrics of the run's epochs.
        run: the folder of the run, for commands.
        changed: share of nearest neighbors that the pretrained weights it started from did not
            find; None if it started from random ones.
        data: the images of an encoder that belongs to no run, for commands.
        labeled: whether the images have labels, so that more can be measured.
    """
    data = config.data if config is not None else data
    if changed is not None and config is not None:
        findings = [_better_than_its_start(changed, config, run, labeled)]
    else:
        findings = [_better(figures, config, run, data)]
    if config is not None and epochs:
        healthy = _healthy(figures, config, epochs[-1])
        findings = [healthy, *findings, _long_enough(config, epochs, run)]
    answers = [each.answer for each in findings]
    # What is wrong comes before what is unclear. An encoder that is not better than an untrained
    # one may just need more steps, so its length comes before that.
    ordered = sorted(findings, key=lambda each: each.answer.question in _QUESTIONS.values())
    for wanted in ("no", "unclear"):
        for finding in ordered:
            if finding.answer.answer == wanted:
                return Verdict(answers, finding.remedy)
    command = ("wcl", "embed", run or "RUN", "--data", data, "--out", "features.parquet")
    return Verdict(answers, f"use it: {shell_command(*command)}")


def _healthy(
    figures: Mapping[str, Mapping[str, float]], config: PretrainConfig, last: Mapping[str, Any]
) -> _Finding:
    """Judge collapse and the size of groups by the last epoch's metrics and by RankMe."""
    question = "Is it healthy?"
    checks = []
    if (share := last.get("collapsed")) is not None:
        text = f"{share:.0%} of the embedding's dimensions hardly vary (limit {COLLAPSED:.0%})"
        checks.append((share > COLLAPSED, text))
    if figures:
        start = "pretrained" if "pretrained" in figures else "untrained"
        own, before = (figures[name]["rankme"] for name in ("encoder", start))
        text = f"RankMe of the features is {own:.1f}, {before:.1f} before training"
        checks.append((has_collapsed(own, before), f"{text} (limit {_MIN_RANK:.0%} of that)"))
    for is_collapsed, text in checks:
        if is_collapsed:
            return _Finding(
                Answer(question, "no", f"The embeddings have collapsed: {text}."),
                f"train again with a smaller learning rate: --optim.lr {config.optim.lr / 10:g}",
            )
    texts = [text for _, text in checks]
    largest = last.get("largest_component")
    # The groups of methods that learn from labels are the classes.
    if largest is not None and not find_method(config.method).needs_labels:
        images = f"{largest * config.batch_size:.0f} of the {config.batch_size} images"
        text = f"the largest group has {images} of a batch ({largest:.0%}, limit {_MAX_GROUP:.0%})"
        if largest > _MAX_GROUP:
            every = config.batch_size * round(last["step"] / last["epoch"])  # images of an epoch
            larger = min(max(_TYPICAL_BATCH, 2 * config.batch_size), every)
            remedy = f"train again with a larger batch: --batch_size {larger}"
            if larger == config.batch_size:
                remedy = f"train again on more than {every} images: add some to {config.data}"
            reason = f"Groups are too large to be of one kind: {text}."
            return _Finding(Answer(question, "no", reason), remedy)
        texts.append(text)
    if not texts:
        return _Finding(
            Answer(question, "unclear", "The run has no diagnostics of its embeddings."),
            "train again with diagnostics: --log.health 1024",
        )
    return _Finding(Answer(question, "yes", f"{'; '.join(texts)}."))


def has_collapsed(rank: float, before: float) -> bool:
    """Return whether RankMe of an encoder is far below that before training."""
    return rank < _MIN_RANK * before


def _better(
    figures: Mapping[str, Mapping[str, float]], config: PretrainConfig | None, run: str, data: str
) -> _Finding:
    """Compare the figure of the encoder with that of the network it started as."""
    adapts = config is not None and bool(config.model.weights)
    if not figures:
        question = _QUESTIONS["pretrained" if adapts else "untrained"]
        command = shell_command("wcl", "eval", "unlabeled", run)
        return _Finding(
            Answer(question, "unclear", "It was not measured."), f"measure it: {command}"
        )
    own = figures["encoder"][FIGURE]
    others = {name: figures[name][FIGURE] for name in _NAMES if name in figures}
    compared = ", ".join(f"{value:.1%} for {_NAMES[name]}" for name, value in others.items())
    limits = f"yes from {_BETTER:g} times the untrained network, no below {_WORSE:g} times"
    reason = (
        f"Two views of an image share {own:.1%} of their nearest neighbors; {compared} "
        f"({limits}; {_CONFIDENCE})."
    )
    return _Finding(
        Answer(_QUESTIONS["untrained"], is_better(own, others["untrained"]), reason),
        "look whether views still show what matters, and change --augment settings if not: "
        + shell_command("wcl", "views", data),
    )


def is_better(own: float, untrained: float) -> Literal["yes", "no", "unclear"]:
    """Return whether the figure of an encoder is clearly higher than that of random weights.

    >>> is_better(0.3, 0.1), is_better(0.1, 0.1)
    ('yes', 'no')
    """
    factor = own / max(untrained, 1e-12)
    return "yes" if factor >= _BETTER else "no" if factor < _WORSE else "unclear"


def _better_than_its_start(
    changed: float, config: PretrainConfig, run: str, labeled: bool
) -> _Finding:
    """Judge an adapted encoder by how many neighbors changed, which shows only great damage."""
    reason = (
        f"{changed:.0%} of an image's nearest neighbors are not those that the weights it started "
        f"from find (no above {_MAX_CHANGED:.0%})"
    )
    if changed > _MAX_CHANGED:
        answer = Answer(_QUESTIONS["pretrained"], "no", f"{reason}: they are lost.")
        slower = f"--optim.lr {config.optim.lr / 10:g}"
        return _Finding(answer, f"use the weights as they are, or adapt them again with {slower}")
    measure = ["wcl", "eval", "lowshot", run or "RUN"]
    if labeled:
        reason = f"{reason}; your labels can tell whether the new ones are better."
        remedy = "measure both encoders with your labels: "
    else:
        reason = f"{reason}; whether the new ones are better cannot be told without labels."
        remedy = "sort a few images into a folder per class and measure both encoders: "
        measure += ["--data", "FOLDER"]
    answer = Answer(_QUESTIONS["pretrained"], "unclear", reason)
    return _Finding(answer, remedy + shell_command(*measure))


def _long_enough(config: PretrainConfig, epochs: Sequence[Mapping[str, Any]], run: str) -> _Finding:
    """Judge the number of steps, and whether the loss still fell in the last quarter."""
    question = _LONG_ENOUGH
    steps, done = int(epochs[-1]["step"]), int(epochs[-1]["epoch"])
    few = few_steps(config)
    # Pretrained weights are adapted in fewer steps than random ones take to learn.
    enough = few if config.model.weights else _ENOUGH_STEPS
    more = -(-enough * done // steps) if steps < enough else 2 * config.epochs
    command = ("wcl", "pretrain", "--out", run, "--resume", "--epochs", str(more))
    remedy = f"train longer: {shell_command(*command)}"
    counted = f"{steps:,} step{'s' if steps != 1 else ''}"
    if steps < few:
        is_few = f"{counted} {'are' if steps != 1 else 'is'} few"
        reason = f"{is_few}: fewer than {few} hardly change a network."
        return _Finding(Answer(question, "no", reason), remedy)
    if done < config.epochs:
        reason = f"Only {done} of {config.epochs} epochs are done."
        return _Finding(Answer(question, "no", reason), remedy)
    losses = [float(line["loss"]) for line in epochs if "loss" in line]
    if steps >= enough and len(losses) < _QUARTERS:
        return _Finding(Answer(question, "yes", f"{counted}, and {enough:,} are enough as a rule."))
    share = last_quarter_share(losses)
    fell = f"{share:.0%} of the loss's fall came in the last quarter (limit {_LAST_QUARTER:.0%})"
    if share > _LAST_QUARTER:
        return _Finding(Answer(question, "no", f"It was still learning: {fell}."), remedy)
    if steps < enough:
        reason = f"{counted}; from {enough:,} on the answer would be yes, since {fell}."
        return _Finding(Answer(question, "unclear", reason), remedy)
    return _Finding(Answer(question, "yes", f"{counted}, and {fell}."))


def last_quarter_share(losses: Sequence[float]) -> float:
    """Return the share of a loss's whole fall that came in the last quarter of the epochs.

    >>> last_quarter_share([9, 5, 3, 2, 1.5, 1.2, 1.1, 1.0])
    0.025
    """
    start, end = losses[-1 - len(losses) // 4], losses[-1]
    whole = max(losses) - end
    return round((start - end) / whole, 6) if whole > 0 else 0.0
