"""The verdict: an answer to every question, with its threshold, and one next step."""

import dataclasses
from typing import Any

import pytest

from wcl.config import PretrainConfig
from wcl.config.layering import settings
from wcl.evaluation.verdict import FIGURE, Verdict, last_quarter_share, verdict
from wcl.methods import method_settings

RANK = {"rankme": 30.0}
GOOD = {
    "encoder": {FIGURE: 0.4, **RANK},
    "untrained": {FIGURE: 0.1, **RANK},
    "pixels": {FIGURE: 0.2, **RANK},
}


@pytest.fixture(scope="module")
def config() -> PretrainConfig:
    return settings("digits", {"batch_size": 64, "epochs": 8}, method_settings)


def epochs(steps: int = 8000, **last: Any) -> list[dict[str, Any]]:
    """Return the metrics of eight epochs whose loss levels off."""
    metrics = {"collapsed": 0.0, "largest_component": 0.1, **last}
    losses = (9, 5, 3, 2, 1.5, 1.2, 1.1, 1.0)
    return [
        {"epoch": n, "step": steps * n // 8, "loss": loss, **metrics}
        for n, loss in enumerate(losses, 1)
    ]


def answers(found: Verdict) -> list[str]:
    return [answer.answer for answer in found.answers]


def test_a_good_run_is_ready_to_use(config: PretrainConfig) -> None:
    found = verdict(GOOD, config, epochs(), "runs/a")
    assert answers(found) == ["yes", "yes", "yes"] and found.worked == "Probably"
    assert "wcl embed runs/a --data digits" in found.next_step


def test_a_run_that_is_only_too_short_has_not_failed(config: PretrainConfig) -> None:
    found = verdict(GOOD, config, epochs(steps=40), "runs/a")
    assert answers(found) == ["yes", "yes", "no"] and found.worked == "Too early to tell"


def test_a_group_of_24_of_64_images_is_a_problem(config: PretrainConfig) -> None:
    found = verdict(GOOD, config, epochs(largest_component=0.375), "runs/a")
    assert answers(found) == ["no", "yes", "yes"] and found.worked == "No"
    assert "24 of the 64 images" in found.answers[0].reason and "25%" in found.answers[0].reason
    assert "--batch_size 256" in found.next_step


def test_classes_are_no_groups(config: PretrainConfig) -> None:
    supcon = dataclasses.replace(config, method="supcon")
    assert answers(verdict(GOOD, supcon, epochs(largest_component=0.5)))[0] == "yes"


def test_thirty_steps_are_a_problem(config: PretrainConfig) -> None:
    found = verdict(GOOD, config, epochs(steps=30), "runs/a")
    assert answers(found) == ["yes", "yes", "no"]
    assert "30 steps" in found.answers[2].reason
    assert "--epochs 267" in found.next_step  # 8 epochs have 30 steps


def test_a_collapse_comes_before_everything_else(config: PretrainConfig) -> None:
    bad = {name: {FIGURE: 0.02, **RANK} for name in GOOD}
    found = verdict(bad, config, epochs(steps=30, collapsed=0.9), "runs/a")
    assert answers(found)[0] == "no" and "90%" in found.answers[0].reason
    assert f"--optim.lr {config.optim.lr / 10:g}" in found.next_step


def test_a_rank_that_shrinks_is_a_collapse(config: PretrainConfig) -> None:
    found = verdict({**GOOD, "encoder": {FIGURE: 0.4, "rankme": 11.0}}, config, epochs())
    assert answers(found) == ["no", "yes", "yes"] and "RankMe" in found.answers[0].reason


@pytest.mark.parametrize(("own", "answer"), [(0.2, "yes"), (0.15, "unclear"), (0.11, "no")])
def test_the_encoder_is_compared_with_the_untrained_network(
    config: PretrainConfig, own: float, answer: str
) -> None:
    found = verdict({**GOOD, "encoder": {FIGURE: own, **RANK}}, config, epochs())
    assert answers(found) == ["yes", answer, "yes"]
    assert (answer == "yes") == ("wcl views" not in found.next_step)


@pytest.mark.parametrize(("changed", "answer"), [(0.71, "no"), (0.69, "unclear"), (0.0, "unclear")])
def test_an_adapted_encoder_is_judged_by_the_neighbors_that_changed(
    config: PretrainConfig, changed: float, answer: str
) -> None:
    figures = {**GOOD, "pretrained": {FIGURE: 0.1, **RANK}}
    found = verdict(figures, config, epochs(), "runs/a", changed)
    assert answers(found) == ["yes", answer, "yes"]
    assert "weights it started from" in found.answers[1].reason
    told = "weights as they are" if answer == "no" else "wcl eval lowshot runs/a"
    assert told in found.next_step


def test_labels_of_adapted_images_are_used(config: PretrainConfig) -> None:
    figures = {**GOOD, "pretrained": {FIGURE: 0.1, **RANK}}
    found = verdict(figures, config, epochs(), "runs/a", 0.3, labeled=True)
    assert "your labels" in found.answers[1].reason
    assert found.next_step.endswith("wcl eval lowshot runs/a")  # on the run's own images


def test_two_epochs_do_not_show_how_the_loss_falls(config: PretrainConfig) -> None:
    short = dataclasses.replace(config, epochs=2)
    found = verdict(GOOD, short, epochs()[-2:], "runs/a")
    assert found.answers[2].answer == "yes" and "quarter" not in found.answers[2].reason


def test_a_falling_loss_asks_for_more_epochs(config: PretrainConfig) -> None:
    falling = [{**line, "loss": 10.0 - n} for n, line in enumerate(epochs())]
    found = verdict(GOOD, config, falling)
    assert answers(found) == ["yes", "yes", "no"] and "--epochs 16" in found.next_step


def test_what_was_not_measured_is_unclear(config: PretrainConfig) -> None:
    found = verdict({}, config, epochs(), "runs/a")
    assert answers(found) == ["yes", "unclear", "yes"] and found.worked == "Not clearly"
    assert "wcl eval unlabeled runs/a" in found.next_step


def test_an_encoder_without_a_run_is_compared_only() -> None:
    found = verdict(GOOD, data="photos")
    assert answers(found) == ["yes"] and "--data photos" in found.next_step


def test_the_last_quarter_of_a_straight_line_is_a_quarter() -> None:
    assert last_quarter_share([8.0, 7, 6, 5, 4, 3, 2, 1, 0]) == 0.25
    assert last_quarter_share([1.0]) == last_quarter_share([1.0, 2.0]) == 0
