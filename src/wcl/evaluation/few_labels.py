"""Draws of a few labeled training images, and files that record what was drawn.

`labeled_rows` is for fine-tuning: a percentage of every class, a number per class, or a list of
names. Every class has one random order, and a draw takes the beginning of it, so that with the same
seed any smaller draw is part of any larger one. `draw` is for low-shot classification, where every
draw is independent. Both depend only on the seed and the data.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wcl.data import Source
from wcl.evaluation.run_files import write_if_possible
from wcl.ops.randomness import Integers, seed_of
from wcl.system.errors import InputError
from wcl.system.paths import expanded, one_line
from wcl.system.progress import track

Labels = npt.NDArray[np.int8]
"""(images, classes): 1 positive, 0 negative, -1 not used for that class (in data: difficult)."""
Scheme = Literal["union", "per-class"]
_DRAW = re.compile(r"(\d{1,9}(?:\.\d+)?)%|(\d{1,9})-per-class")


def labeled_rows(source: Source, spec: str, seed: int) -> Integers:
    """Return the numbers of the labeled images, in ascending order.

    Args:
        source: the training images, with labels.
        spec: a percentage ("10%"), a number per class ("3-per-class"), or a file of image names.
        seed: seed of the draw.

    Raises:
        InputError: `spec` is none of these, or asks for images that do not exist.
    """
    check_spec(spec)
    if not is_draw(spec):
        return _listed(source, expanded(spec))
    assert source.labels is not None
    labels = source.labels.numpy()
    chosen = []
    for number in np.unique(labels).tolist():
        members = np.flatnonzero(labels == number)
        order = np.random.default_rng(seed_of(seed, "labelled", number)).permutation(members)
        chosen.append(order[: _count(spec, source.classes[number], len(members))])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def is_draw(spec: str) -> bool:
    """Return whether `spec` asks for a draw rather than naming a list."""
    return _DRAW.fullmatch(spec) is not None


def check_spec(spec: str) -> None:
    """Raise InputError if `spec` is invalid whatever the images are."""
    if match := _DRAW.fullmatch(spec):
        percent, count = match.groups()
        valid = 0 < float(percent) <= 100 if percent else int(count) > 0
    else:
        valid = bool(spec) and expanded(spec).is_file()
    if not valid:
        raise InputError(
            "--labels: give a percentage (10%), a number per class (3-per-class) or a file of "
            f"image names, not {spec or 'nothing'}"
        )


def _count(spec: str, name: str, size: int) -> int:
    """Return how many images of a class of this size are labeled."""
    number, _, _ = spec.partition("-")
    if number.endswith("%"):
        return max(1, round(size * float(number[:-1]) / 100))
    if size < int(number):
        raise InputError(
            f"--labels: {spec} cannot be drawn; class {name} has only {size} training images"
        )
    return int(number)


def _listed(source: Source, path: Path) -> Integers:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file of image names, one per line") from error
    listed = (line.removeprefix("./") for line in lines if line and not line.startswith("#"))
    names = dict.fromkeys(listed)  # without repetitions, in their order
    found: dict[str, list[int]] = {}
    for row in track(range(len(source)), "looking for the listed images"):
        name = _name(source, row)
        file = name.rpartition("/")[2]
        for match in names.keys() & {name, file, file.rpartition(".")[0]}:
            found.setdefault(match, []).append(row)
    if absent := [name for name in names if name not in found]:
        raise InputError(
            f"{path}: {len(absent)} of its {len(names)} names not found among the training images "
            f"of {source.name}; the first is {absent[0]}"
        )
    if ambiguous := [name for name, rows in found.items() if len(rows) > 1]:
        first, second = (_name(source, row) for row in found[ambiguous[0]][:2])
        raise InputError(
            f"{path}: {ambiguous[0]} matches several images, such as {first} and {second}; write "
            "the path from the folder of the data"
        )
    return np.unique(np.array(list(chain(*found.values())), dtype=np.int64))


def _name(source: Source, row: int) -> str:
    """Return the path of an image below the folder of its source, or another unique name."""
    folder = os.fsencode(source.name).decode(errors="replace")  # as `where` spells it
    return source.where(row).removeprefix(f"{folder}/")


def write_manifest(
    folder: Path, source: Source, rows: Integers, spec: str, seed: int
) -> Path | None:
    """Write the names of the labeled images as a list that `labeled_rows` accepts."""
    names = [_name(source, row) for row in rows.tolist()]
    header = f"# {len(names)} labeled images of {one_line(source.name)}: {spec}, seed {seed}"
    lines = [header, *(f"./{name}" if name.startswith("#") else name for name in names), ""]
    return _write(folder, f"{spec.replace('%', '-percent')}-seed-{seed}", "\n".join(lines), ".txt")


@dataclass(frozen=True)
class TrainingSet:
    """Labels to train SVMs with."""

    k: int | None
    """Examples per class; None for all images."""
    run: int
    """Number of the draw."""
    labels: Labels

    @property
    def rows(self) -> Integers:
        """The numbers of the images that are used for any class."""
        return np.flatnonzero((self.labels != -1).any(axis=1))


def draw(
    labels: Labels, classes: Sequence[str], k: int, run: int, seed: int, scheme: Scheme
) -> TrainingSet:
    """Draw k examples of every class.

    `union`: k positives of every class; every drawn image keeps all its labels, where difficult
    counts as absent. `per-class`: k positives and (classes − 1)·k negatives of every class, or as
    many as exist, for that class only. The draw of a class depends only on its images, the seed, k
    and the run; the positives are the same in both schemes.

    Args:
        labels: (images, classes), each class with at least k ones.
        classes: names of the classes.
        k: examples per class.
        run: number of the draw.
        seed: seed of all draws.
        scheme: union or per-class.
    """
    chosen = np.full_like(labels, -1)
    for number, name in enumerate(classes):

        def sample(label: int, count: int, number: int = number, name: str = name) -> Integers:
            generator = np.random.default_rng(seed_of(seed, "low-shot", k, run, name, label))
            return generator.permutation(np.flatnonzero(labels[:, number] == label))[:count]

        positives = sample(1, k)
        if scheme == "union":
            chosen[positives] = labels[positives] == 1
        else:
            chosen[positives, number] = 1
            chosen[sample(0, (len(classes) - 1) * k), number] = 0
    return TrainingSet(k, run, chosen)


def write_draws(
    folder: Path,
    sets: Sequence[TrainingSet],
    classes: Sequence[str],
    places: Sequence[str],
    scheme: Scheme,
    seed: int,
) -> Path | None:
    """Write the numbers of the images of every draw, and the place of each of these images.

    A draw lists its rows (union), or for each class the rows with it and those without it.
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
    return _write(folder, scheme, json.dumps(content) + "\n", ".json")


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


def _write(folder: Path, name: str, text: str, suffix: str) -> Path | None:
    """Write a file whose name depends on its content; report a failure and return None."""
    content = text.encode(errors="replace")
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}{suffix}"
    written = write_if_possible(path, content, "the list of drawn images is not written")
    return path if written else None
