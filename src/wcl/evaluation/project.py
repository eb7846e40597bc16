"""A map of features by t-SNE, with measures of how well classes are separated.

Classes and images are chosen at random; two runs are drawn side by side with the same images. The
measures are computed from the features, because t-SNE does not preserve distances.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wcl.config import ProjectConfig
from wcl.data import Source, subset, with_format
from wcl.evaluation.features import features_and_rows
from wcl.evaluation.preprocessing import with_preprocessing
from wcl.evaluation.result import Result
from wcl.models.encoder import Encoder
from wcl.models.opening import open_encoder
from wcl.ops.randomness import seed_of
from wcl.system.errors import InputError, RunError
from wcl.system.files import atomic_write, must_be_new, new_file
from wcl.system.machine import best_device
from wcl.system.paths import one_line, shortened
from wcl.system.plots import PALETTE, PLOT_SUFFIXES, plot_style, save_figure
from wcl.system.progress import log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_NAME = 32  # characters
_MARKERS = "osD"  # thirty combinations with the ten colors
_MIN_IMAGES = 4  # for t-SNE


def project(encoder: Encoder, train: Source, test: Source, config: ProjectConfig) -> Result:
    """Draw the map, write its coordinates and measure the separation of classes."""
    plot = new_file(config.out, PLOT_SUFFIXES)
    table = plot.with_suffix(".csv")
    must_be_new(table)
    encoders = {"run": encoder}
    if config.against:
        other = open_encoder(config.against, best_device(config.device))
        encoders["against"] = with_preprocessing(other, config)
    chosen = choose(test, config)
    features = {}
    for name, one in encoders.items():
        images = with_format(chosen, one.description.channels, one.description.levels)
        # Which images can be read does not depend on the encoder.
        features[name], rows = features_and_rows(one, images, config.num_workers)
    assert chosen.labels is not None
    labels = chosen.labels[rows]
    if len(rows) < _MIN_IMAGES or not 1 < len(labels.unique()) < len(labels):
        raise InputError(
            f"{test.name}: at least two classes and {_MIN_IMAGES} readable images, two of them of "
            "one class, are needed; give more test images with --test_data"
        )
    maps = {name: tsne(values, config.seed) for name, values in features.items()}
    measured = {name: separation(values, labels) for name, values in features.items()}
    names = run_names({name: one.home for name, one in encoders.items()})
    titles = [_title(names[name], measured[name], one) for name, one in encoders.items()]
    with atomic_write(table) as unfinished_table, atomic_write(plot) as unfinished_plot:
        _write_coordinates(unfinished_table, chosen, rows, maps)
        figure = draw(list(maps.values()), titles, labels, test.classes)
        save_figure(figure, unfinished_plot, plot.suffix.lower())
    score = measured["run"]["silhouette"]
    details = {"picture": str(plot), "numbers": str(table)}
    runs = [{"name": names[name], **figures} for name, figures in measured.items()]
    return Result("project", score, 0, len(rows), details, runs, "silhouette")


def choose(source: Source, config: ProjectConfig) -> Source:
    """Choose the images to draw: some classes at random, some images of each."""
    assert source.labels is not None
    generator = np.random.default_rng(seed_of(config.seed, "project"))
    present = np.unique(source.labels.numpy())
    if len(present) > config.groups:
        present = np.sort(generator.choice(present, config.groups, replace=False))
    members = (np.flatnonzero(source.labels.numpy() == label) for label in present)
    some = [np.sort(generator.permutation(rows)[: config.per_group]) for rows in members]
    return subset(source, np.concatenate(some))


def tsne(values: Tensor, seed: int, quick: bool = False) -> Tensor:
    """Map features to the plane by t-SNE on unit vectors: (n, D) → (n, 2).

    Args:
        values: (n, D) features.
        seed: random seed.
        quick: fewer and coarser steps; 5,000 images take a third of the time.

    Raises:
        RunError: all features are equal.
    """
    from sklearn.manifold import TSNE

    if float(F.normalize(values, dim=1).std(dim=0).max()) < 1e-7:
        raise RunError(
            "all features are equal: there is nothing to draw; the encoder has collapsed"
        )
    log(f"drawing a map of {len(values):,} images")
    # scikit-learn requires a perplexity below the number of images.
    perplexity = min(30.0, (len(values) - 1) / 3)
    fitted = TSNE(
        perplexity=perplexity,
        init="pca",
        random_state=seed % 2**32,
        angle=0.8 if quick else 0.5,
        max_iter=500 if quick else 1000,
    )
    return torch.from_numpy(fitted.fit_transform(F.normalize(values, dim=1).numpy()))


def separation(values: Tensor, labels: Tensor) -> dict[str, float]:
    """Measure how tight the classes are and how far apart, in cosine distance.

    At least two classes are needed, one of them with two images.

    Returns:
        compactness: mean distance of an image to the mean of its class (smaller is tighter);
        distance: mean distance between the means of two classes (larger is farther apart);
        silhouette: from −1 to 1, how much nearer images are to their own class than to the next.
    """
    from sklearn.metrics import silhouette_score

    unit = F.normalize(values.double(), dim=1)
    classes = labels.unique()
    means = F.normalize(
        torch.stack([unit[labels == label].mean(dim=0) for label in classes]), dim=1
    )
    own = means[torch.searchsorted(classes, labels)]
    between = 1 - (means @ means.T)[~torch.eye(len(classes), dtype=torch.bool)]
    return {
        "compactness": float((1 - (unit * own).sum(dim=1)).mean()),
        "distance": float(between.mean()),
        "silhouette": float(silhouette_score(unit.numpy(), labels.numpy(), metric="cosine")),
    }


def run_names(homes: dict[str, Path | None]) -> dict[str, str]:
    """Name runs by their folders, with as many parent folders as it takes to tell them apart.

    >>> run_names({"run": Path("a/first"), "against": Path("b/first")})
    {'run': 'a/first', 'against': 'b/first'}
    """
    parts = {role: home.absolute().parts for role, home in homes.items() if home is not None}
    depth = 1
    while len({part[-depth:] for part in parts.values()}) < len(set(parts.values())):
        depth += 1
    names = {role: one_line(str(Path(*part[-depth:]))) for role, part in parts.items()}
    # An encoder without a run is named by its role.
    return {role: shortened(names.get(role, role), _MAX_NAME) for role in homes}


def _title(name: str, figures: dict[str, float], encoder: Encoder) -> str:
    described = encoder.description
    run = f"{name} ({described.method}, epoch {described.epoch})"
    words = "   ".join(f"{figure} {value:.3f}" for figure, value in figures.items())
    return f"{shortened(run, len(words))}\n{words}"


@plot_style()
def draw(
    maps: Sequence[Tensor], titles: Sequence[str], labels: Tensor, classes: Sequence[str]
) -> "Figure":
    """Draw maps side by side, with a color and a marker for each class and one legend below."""
    from matplotlib.figure import Figure

    present = labels.unique().tolist()
    names = [shortened(one_line(str(classes[label])), _MAX_NAME) for label in present]
    columns = max(1, 60 * len(maps) // (max(map(len, names)) + 5))  # of the legend
    lines = -(-len(names) // columns)
    figure = Figure((4.5 * len(maps), 4.6 + 0.2 * lines), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, places, title in zip(panels, maps, titles, strict=True):
        axes.set_title(title, loc="left", parse_math=False)
        low, high = places.amin(dim=0), places.amax(dim=0)
        middle, half = (low + high) / 2, 0.53 * (high - low).max().clamp(min=1e-9)
        limits = torch.stack([middle - half, middle + half]).T.tolist()
        axes.set(xticks=[], yticks=[], xlim=limits[0], ylim=limits[1], aspect="equal")
        axes.spines[:].set(visible=True, color="#c8c8c8")
        for number, label in enumerate(present):
            x, y = places[labels == label].T.numpy()
            marker, color = _MARKERS[number % len(_MARKERS)], PALETTE[number % len(PALETTE)]
            style = {"s": 18, "linewidths": 0.3, "edgecolors": "white"}
            axes.scatter(x, y, color=color, marker=marker, **style)
    legend = figure.legend(
        panels[0].collections,
        names,
        loc="outside lower center",
        ncols=-(-len(names) // lines),
        handlelength=1,
        columnspacing=1,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _write_coordinates(path: Path, source: Source, rows: Tensor, maps: dict[str, Tensor]) -> None:
    """Write one line per image: its path, its class and its place on each map."""
    assert source.labels is not None
    with path.open("w", newline="", errors="replace", encoding="utf-8") as file:
        writer = csv.writer(file)
        places = [f"{name}_{axis}" for name in maps for axis in ("x", "y")]
        writer.writerow(["image", "class", *places])
        for number, row in enumerate(rows.tolist()):
            where = [source.where(row), source.classes[int(source.labels[row])]]
            writer.writerow([*where, *(v for m in maps.values() for v in m[number].tolist())])
