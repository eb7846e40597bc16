"""A few examples of every class, drawn and written down."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wcl.evaluation.svm import Labels
from wcl.ops.randomness import Integers, seed_of
from wcl.system.files import atomic_write
from wcl.system.progress import say

Scheme = Literal["union", "per-class"]


@dataclass(frozen=True)
class TrainingSet:
    """Labels to train with, -1 for what was not drawn."""

    k: int | None
    """Examples per class; None for all images."""
    run: int
    """Which of several draws."""
    labels: Labels

    @property
    def rows(self) -> Integers:
        """The numbers of the images that are used for any class."""
        return np.flatnonzero((self.labels != -1).any(axis=1))


def draw(
    labels: Labels, classes: Sequence[str], k: int, run: int, seed: int, scheme: Scheme
) -> TrainingSet:
    """Draw k examples of every class.

    `union`: k positives of every class; every drawn image has all its labels. `per-class`: k
    positives and (classes − 1)·k negatives of every class, or as many as there are, for that class
    alone.

    What is drawn of a class depends on its images, the seed, k and the run's number alone; the
    positives are the same in both schemes.

    Args:
        labels: (images, classes), each class with at least k ones.
        classes: their names.
        k: examples per class.
        run: which of several draws.
        seed: of all draws.
        scheme: as above.
    """
    chosen = np.full_like(labels, -1)
    for number, name in enumerate(classes):

        def some(label: int, count: int, number: int = number, name: str = name) -> Integers:
            generator = np.random.default_rng(seed_of(seed, "low-shot", k, run, name, label))
            return generator.permutation(np.flatnonzero(labels[:, number] == label))[:count]

        positives = some(1, k)
        if scheme == "union":
            chosen[positives] = labels[positives]
        else:
            chosen[positives, number] = 1
            chosen[some(0, (len(classes) - 1) * k), number] = 0
    return TrainingSet(k, run, chosen)


def write_draws(
    folder: Path,
    sets: Sequence[TrainingSet],
    classes: Sequence[str],
    places: Sequence[str],
    scheme: Scheme,
    seed: int,
) -> Path | None:
    """Write which images were drawn to a file whose name depends on them; None if it cannot be.

    Images are numbers, and `images` says where each of these lies. A draw has the images of its
    union, or for each class those with it and those without.
    """
    used = sorted({int(row) for drawn in sets for row in drawn.rows})
    content = {
        "scheme": scheme,
        "seed": seed,
        "images": {row: places[row] for row in used},
        "draws": [
            {"k": drawn.k, "run": drawn.run, **_described(drawn, classes, scheme)} for drawn in sets
        ],
    }
    text = json.dumps(content) + "\n"
    path = folder / f"{scheme}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        folder.mkdir(exist_ok=True)
        with atomic_write(path) as unfinished:
            unfinished.write_text(text)
    except OSError as error:  # an evaluation does not fail for it
        say(f"the draws are not written down ({error})")
        return None
    return path


def _described(drawn: TrainingSet, classes: Sequence[str], scheme: Scheme) -> dict[str, Any]:
    if scheme == "union":
        return {"rows": drawn.rows.tolist()}
    return {
        "classes": {
            name: {
                "with": np.flatnonzero(column == 1).tolist(),
                "without": np.flatnonzero(column == 0).tolist(),
            }
            for name, column in zip(classes, drawn.labels.T, strict=True)
        }
    }
