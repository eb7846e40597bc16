"""Label-free figures of an encoder beside those of networks without training, and a verdict."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wcl.config import PretrainConfig, UnlabeledConfig
from wcl.data import Source, in_memory, limited, with_format
from wcl.evaluation.augmented import run_settings, view_features
from wcl.evaluation.label_free import FIGURES, IMAGES, label_free
from wcl.evaluation.references import pretrained_encoder, untrained_encoder
from wcl.evaluation.result import Result
from wcl.evaluation.verdict import FIGURE, NEEDED, Verdict, verdict
from wcl.models.encoder import Encoder
from wcl.ops.agreement import neighbor_agreement
from wcl.system.errors import InputError
from wcl.system.progress import log
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

NEEDS_LABELS = False


class Measured(NamedTuple):
    """Label-free figures of an encoder and its baselines."""

    figures: dict[str, dict[str, float]]
    """By the name of the network."""
    images: int
    """How many could be read."""
    neighbors_changed: float | None
    """Share of an image's nearest neighbors that were not so for the weights that the run started
    from; None if they were random."""


def unlabeled(encoder: Encoder, train: Source, test: Source, config: UnlabeledConfig) -> Result:
    """Measure all figures on test images, or training images if there are no others."""
    sample = limited(test, config.images, config.seed)
    found = measured(encoder, sample, tuple(FIGURES), config.seed, config.num_workers)
    said = run_verdict(encoder, found.figures)
    rows = [
        {"figure": figure.title, **{name: own[key] for name, own in found.figures.items()}}
        for key, figure in FIGURES.items()
    ]
    details: dict[str, Any] = {"verdict": [answer._asdict() for answer in said.answers]}
    details["next_step"] = said.next_step
    if found.neighbors_changed is not None:
        details["neighbors_changed"] = found.neighbors_changed
    score = found.figures["encoder"][FIGURE]
    return Result("unlabeled", score, 0, found.images, details, rows, FIGURE)


def quick_verdict(encoder: Encoder, source: Source, num_workers: int = -1) -> Verdict:
    """Return the verdict on an encoder, measuring on some images no more than it needs."""
    found = measured(encoder, limited(source, IMAGES, 0), NEEDED, 0, num_workers)
    return run_verdict(encoder, found.figures)


def run_verdict(encoder: Encoder, figures: Mapping[str, Mapping[str, float]]) -> Verdict:
    """Return the verdict on an encoder from figures and from the metrics of its run, if any."""
    if encoder.home is None or not RunFolder(encoder.home).config.is_file():
        return verdict(figures)
    lines = read_metrics(RunFolder(encoder.home).metrics)
    epochs = [line for line in lines if line["kind"] == "epoch"]
    return verdict(figures, run_settings(encoder), epochs, str(encoder.home))


def measured(
    encoder: Encoder, sample: Source, names: tuple[str, ...], seed: int, num_workers: int
) -> Measured:
    """Compute figures of the encoder, of its baselines and of raw pixels.

    Args:
        encoder: the encoder.
        sample: the images.
        names: of the figures.
        seed: of the augmented views.
        num_workers: processes that decode photos.
    """
    config = run_settings(encoder)
    described = encoder.description
    source = with_format(in_memory(sample), described.channels, described.levels)
    networks = {"encoder": encoder, **baselines(encoder, config)}
    views = view_features(networks, source, config, seed, num_workers)
    figures = {name: label_free(features, names) for name, features in views.items()}
    changed = None
    if "pretrained" in views:
        changed = 1 - float(neighbor_agreement(views["pretrained"][0], views["encoder"][0]))
    return Measured(figures, views["encoder"].shape[1], changed)


def baselines(encoder: Encoder, config: PretrainConfig) -> dict[str, Encoder]:
    """Return what the encoder must be better than.

    Returns:
        `untrained`, the network with its initial weights; and `pretrained`, with the weights that
        the run started from, if it did.
    """
    found = {"untrained": untrained_encoder(encoder, config.seed)}
    try:
        pretrained = pretrained_encoder(encoder)
    except InputError as error:
        log(f"the weights that the run started from are left out: {error}")
        return found
    return found if pretrained is None else {**found, "pretrained": pretrained}
