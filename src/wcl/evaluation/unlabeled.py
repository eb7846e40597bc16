"""Label-free figures of an encoder beside those of networks without training, and a verdict."""

from collections.abc import Mapping
from typing import Any

from wcl.config import PretrainConfig, UnlabeledConfig
from wcl.data import Source, in_memory, limited, with_format
from wcl.evaluation.augmented import run_settings, view_features
from wcl.evaluation.features import features_and_rows
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


def unlabeled(encoder: Encoder, train: Source, test: Source, config: UnlabeledConfig) -> Result:
    """Measure all figures on test images, or training images if there are no others."""
    sample = limited(test, config.images, config.seed)
    figures, count = measured(encoder, sample, tuple(FIGURES), config.seed, config.num_workers)
    adapted = "pretrained" in figures
    changed = changed_by_adapting(encoder, sample, config.num_workers) if adapted else None
    said = run_verdict(encoder, figures, changed, config.data, sample.labels is not None)
    rows = [
        {"figure": figure.title, **{name: own[key] for name, own in figures.items()}}
        for key, figure in FIGURES.items()
    ]
    details: dict[str, Any] = {"verdict": [answer._asdict() for answer in said.answers]}
    details["next_step"] = said.next_step
    if changed is not None:
        details["changed_by_adapting"] = changed
    return Result("unlabeled", figures["encoder"][FIGURE], 0, count, details, rows, FIGURE)


def changed_by_adapting(encoder: Encoder, sample: Source, num_workers: int = -1) -> float:
    """Compute the share of nearest neighbors that the weights it started from did not find.

    Among 10 neighbors of each image, without augmentation.
    """
    untouched = pretrained_encoder(encoder)
    assert untouched is not None
    described = encoder.description
    source = with_format(in_memory(sample), described.channels, described.levels)
    before, after = (
        features_and_rows(network, source, num_workers)[0] for network in (untouched, encoder)
    )
    return 1 - float(neighbor_agreement(before, after))


def quick_verdict(encoder: Encoder, source: Source, num_workers: int = -1) -> Verdict:
    """Return the verdict on an encoder, measuring on some images no more than it needs."""
    sample = limited(source, IMAGES, 0)
    figures, _ = measured(encoder, sample, NEEDED, 0, num_workers)
    adapted = "pretrained" in figures
    changed = changed_by_adapting(encoder, sample, num_workers) if adapted else None
    return run_verdict(encoder, figures, changed, source.name, source.labels is not None)


def run_verdict(
    encoder: Encoder,
    figures: Mapping[str, Mapping[str, float]],
    changed: float | None = None,
    data: str = "SRC",
    labeled: bool = False,
) -> Verdict:
    """Return the verdict on an encoder from figures and from the metrics of its run, if any."""
    if encoder.home is None or not RunFolder(encoder.home).config.is_file():
        return verdict(figures, data=data)
    lines = read_metrics(RunFolder(encoder.home).metrics)
    epochs = [line for line in lines if line["kind"] == "epoch"]
    run = str(encoder.home)
    return verdict(figures, run_settings(encoder), epochs, run, changed, labeled=labeled)


def measured(
    encoder: Encoder, sample: Source, names: tuple[str, ...], seed: int, num_workers: int
) -> tuple[dict[str, dict[str, float]], int]:
    """Compute figures of the encoder, of its baselines and of raw pixels.

    Args:
        encoder: the encoder.
        sample: the images.
        names: of the figures.
        seed: of the augmented views.
        num_workers: processes that decode photos.

    Returns:
        Figures by the name of the network, and the number of images that could be read.
    """
    config = run_settings(encoder)
    described = encoder.description
    source = with_format(in_memory(sample), described.channels, described.levels)
    networks = {"encoder": encoder, **baselines(encoder, config)}
    views = view_features(networks, source, config, seed, num_workers)
    figures = {name: label_free(features, names) for name, features in views.items()}
    return figures, views["encoder"].shape[1]


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
