"""The verdict on an encoder: what it counts, what it quotes and what it advises."""

from typing import Any

import pytest

from wcl.evaluation.comparison import verdict


def row(score: float, setting: str = "3 per class", **values: Any) -> dict[str, Any]:
    """A row of `wcl eval all` with 500 test images."""
    shared = {"protocol": "lowshot", "measure": "top1", "setting": setting, "n_test": 500}
    return {**shared, "encoder": score, "untrained": 0.75, "untrained_margin": 0.03, **values}


@pytest.mark.parametrize(
    ("scores", "answer"),
    [
        ([0.88, 0.75], "Yes"),
        ([0.76, 0.74], "Not clearly"),
        ([0.70, 0.75], "No"),
        ([0.88, 0.60], "Partly"),
        ([0.782], "Yes"),
        ([0.782, 0.75, 0.75, 0.75], "Not clearly"),  # one of four beyond its margin by chance
    ],
)
def test_the_answer_follows_from_all_measurements(scores: list[float], answer: str) -> None:
    found = verdict([row(score) for score in scores], "it")
    assert found is not None and found.answer == answer


def test_a_clear_gain_counts_although_k_nn_shows_none() -> None:
    knn = row(0.76, "k = 20", protocol="knn")
    found = verdict([knn, row(0.875, "80 epochs", protocol="linear")], "the encoder")
    assert found is not None and found.answer == "Yes"
    assert "by a linear probe, the encoder classifies 87.5% of 500" in found.sentence
    assert "75.0% untrained (+12.5 ± 3.0 points)" in found.sentence


def test_few_labels_are_quoted_with_the_better_baseline() -> None:
    rows = [
        row(0.88, f"{count} per class", pixels=0.8, pixels_margin=0.025) for count in (1, 4, 64)
    ]
    found = verdict([*rows, row(0.99, "k = 20", protocol="knn")], "it")
    assert found is not None
    assert found.sentence.startswith("with 4 labels per class, it classifies 88.0%")
    assert (
        "75.0% untrained and 80.0% by raw pixels (+8.0 ± 2.5 points against raw" in found.sentence
    )


def test_the_untouched_encoder_is_what_adapting_has_to_beat() -> None:
    def said(score: float) -> tuple[str, str]:
        rows = [row(score, pretrained=0.9, pretrained_margin=0.01), row(0.99, protocol="finetune")]
        found = verdict(rows, "it", "timm:resnet18@weights.pth")
        assert found is not None
        return found

    answer, sentence = said(0.95)
    assert answer == "Yes" and "90.0% untouched" in sentence and "helped" in sentence
    for score, expected, advice in (
        (0.8, "No", "the untouched encoder, `timm:resnet18@weights.pth`, is the better"),
        (0.901, "Not clearly", "`timm:resnet18@weights.pth`: either will do"),
    ):
        answer, sentence = said(score)
        assert answer == expected
        assert advice in sentence


def test_nothing_is_said_without_a_baseline_and_nothing_counts_without_a_margin() -> None:
    assert verdict([], "it") is None
    old = {name: value for name, value in row(0.5, measure="map").items() if "margin" not in name}
    found = verdict([old], "it")
    assert found is not None and found.answer == "Not clearly" and "±" not in found.sentence
    old |= {"measure": "top1", "encoder": 0.9}  # as evaluations had before margins
    found = verdict([old], "it")
    assert found is not None and found.answer == "Yes"
