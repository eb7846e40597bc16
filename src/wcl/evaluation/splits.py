"""Which training images have labels: a share of every class, so many of each, or a list of names.

What is drawn depends on the seed and the data alone. Every class has one random order, and a draw
takes its beginning: of one seed, any smaller draw is part of any larger one.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np

from wcl.data import Source
from wcl.ops.randomness import Integers, seed_of
from wcl.system.errors import InputError
from wcl.system.files import atomic_write
from wcl.system.paths import expanded
from wcl.system.progress import say, track

# The lists of ImageNet's images that SimCLR was fine-tuned on, by how many names they have.
_PUBLISHED = {
    12_811: "71e82a48ba78252683ae334c4d019ebd5c6e855b9599c1389fbe83eb9549cf17",
    128_116: "6d09de11e7bdaf5b1f3b1f249b6183695f97310cdd20f0c03e7235b6b9392091",
}


def labeled_rows(source: Source, spec: str, seed: int) -> Integers:
    """The numbers of the images that have labels, in ascending order.

    Args:
        source: the training images, with labels.
        spec: a percentage ("10%"), so many of each class ("3-per-class"), or a file of names.
        seed: of a draw; a list needs none.

    Raises:
        InputError: `spec` is none of these, or asks for images that are not there.
    """
    check_spec(spec)
    count = _count(spec)
    return _drawn(source, seed, count) if count else _listed(source, expanded(spec))


def check_spec(spec: str) -> None:
    """Raise InputError if `spec` is none of what `labeled_rows` takes, whatever the images are."""
    if not spec:
        raise InputError(
            "--labels: say which images have labels: 10%, 3-per-class, or a file of names"
        )
    if not (is_draw(spec) or expanded(spec).is_file()):
        raise InputError(
            f"--labels: {spec} is neither a percentage (10%), nor so many of each class "
            "(3-per-class), nor a file of names"
        )


def is_draw(spec: str) -> bool:
    """Whether it is a draw that `spec` asks for, and not a list."""
    return _count(spec) is not None


def keep_manifest(folder: Path, source: Source, rows: Integers, spec: str, seed: int) -> Path:
    """Write the names of these images into a folder, as a list that `labeled_rows` takes.

    The file's name depends on its content, so that another split is another file.
    """
    names = [_as_line(_name(source, row)) for row in rows.tolist()]
    called = " ".join(_printable(source.name).split("\n"))
    header = f"# {len(names)} labeled images of {called}: {spec}, seed {seed}"
    content = "\n".join([header, *names, ""]).encode()
    drawn = spec.replace("%", "-percent")
    path = folder / f"{drawn}-seed-{seed}-{hashlib.sha256(content).hexdigest()[:8]}.txt"
    folder.mkdir(exist_ok=True)
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(content)
    return path


# From a class and how many images it has to how many of them are labeled.
Count = Callable[[str, int], int]


def _count(spec: str) -> Count | None:
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)%", spec):
        return _share(float(found[1]))
    if found := re.fullmatch(r"(\d{1,9})-per-class", spec):
        return _exactly(int(found[1]))
    return None


def _drawn(source: Source, seed: int, count: Count) -> Integers:
    assert source.labels is not None
    labels = source.labels.numpy()
    chosen = []
    for number, name in enumerate(source.classes):
        members = np.flatnonzero(labels == number)
        if len(members) == 0:
            continue  # a number that no image has: there is nothing to draw, or to learn
        order = np.random.default_rng(seed_of(seed, "labelled", number)).permutation(members)
        chosen.append(order[: count(name, len(members))])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _share(percent: float) -> Count:
    if not 0 < percent <= 100:
        raise InputError(f"--labels: a percentage is above 0 and at most 100, not {percent:g}")
    return lambda name, size: max(1, round(size * percent / 100))


def _exactly(wanted: int) -> Count:
    if wanted < 1:
        raise InputError(f"--labels: at least 1 image of each class is needed, not {wanted}")

    def count(name: str, size: int) -> int:
        if size < wanted:
            raise InputError(
                f"--labels: class {name} has only {size} training images, so {wanted} of each "
                "class cannot be labeled"
            )
        return wanted

    return count


def _listed(source: Source, path: Path) -> Integers:
    content = path.read_bytes()
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file of image names, one per line") from error
    given = [_from_line(line) for line in lines if line and not line.startswith("#")]
    names = list(dict.fromkeys(given))  # without repetitions, in their order
    if len(names) in _PUBLISHED and hashlib.sha256(content).hexdigest() != _PUBLISHED[len(names)]:
        say(
            f"{path}: has as many names as SimCLR's published list, but is not that list "
            "(another sha256)"
        )
    places = _places(source, names)
    if absent := [name for name in names if name not in places]:
        raise InputError(
            f"{path}: {len(absent)} of its {len(names)} names not found among the training images "
            f"of {source.name}; the first is {absent[0]}"
        )
    if unclear := [name for name in names if len(places[name]) > 1]:
        first, second = (_name(source, row) for row in places[unclear[0]][:2])
        raise InputError(
            f"{path}: {unclear[0]} fits several images, such as {first} and {second}; write the "
            "path from the data's folder"
        )
    return np.unique(np.array(list(chain(*places.values())), dtype=np.int64))


def _places(source: Source, names: Sequence[str]) -> dict[str, list[int]]:
    """For each name that is found, the images that go by it."""
    wanted = set(names)
    places: dict[str, list[int]] = {}
    for row in track(range(len(source)), "looking for the listed images"):
        for name in wanted & _calls(_name(source, row)):
            places.setdefault(name, []).append(row)
    return places


def _calls(name: str) -> set[str]:
    """What a list may call an image: by its path, its file's name, or that without the ending."""
    file = name.rpartition("/")[2]
    return {name, file, file.rpartition(".")[0]}


def _name(source: Source, row: int) -> str:
    """An image's path below its source's folder, or whatever else tells it from others."""
    return source.where(row).removeprefix(f"{_printable(source.name)}/")


def _printable(name: str) -> str:
    """As sources say where an image is: names need not be text."""
    return os.fsencode(name).decode(errors="replace")


def _as_line(name: str) -> str:
    """A name as a line of a list; one that would not come back from it as a string of JSON."""
    plain = name == name.strip() and "\n" not in name and name[:1] not in ("#", '"')
    return name if plain else json.dumps(name, ensure_ascii=False)


def _from_line(line: str) -> str:
    """The name that a line of a list has."""
    if line.startswith('"'):
        with suppress(ValueError):
            return str(json.loads(line))
    return line.removeprefix("./")
