"""Lists of labeled images for the table `semi`, such as the published ones of SimCLR."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wcl.data import open_splits
from wcl.evaluation.few_labels import labeled_rows
from wcl.system.errors import InputError
from wcl.system.paths import expanded

TABLE = "semi"
# File and SHA-256 of SimCLR's lists, in the folder imagenet_subsets of google-research/simclr.
_PUBLISHED = {
    "1%": ("1percent.txt", "71e82a48ba78252683ae334c4d019ebd5c6e855b9599c1389fbe83eb9549cf17"),
    "10%": ("10percent.txt", "6d09de11e7bdaf5b1f3b1f249b6183695f97310cdd20f0c03e7235b6b9392091"),
}


@dataclass(frozen=True)
class LabelList:
    """A list of labeled images."""

    path: Path
    sha256: str


def label_lists(folder: str, table: str) -> dict[str, LabelList]:
    """Return the lists in a folder by the share of the images that they label; {} without one.

    Raises:
        InputError: the table does not use lists, or one of them is missing.
    """
    if not folder:
        return {}
    if table != TABLE:
        raise InputError(f"--labels: only the table {TABLE} uses lists of labeled images")
    found = {}
    for share, (name, _) in _PUBLISHED.items():
        path = expanded(folder).absolute() / name
        try:
            found[share] = LabelList(path, hashlib.sha256(path.read_bytes()).hexdigest())
        except OSError as error:
            names = " and ".join(name for name, _ in _PUBLISHED.values())
            raise InputError(
                f"--labels: {path}: {error.strerror}; give a folder with {names}, such as "
                "imagenet_subsets of github.com/google-research/simclr"
            ) from error
    return found


def check_lists(lists: Mapping[str, LabelList], data: str) -> None:
    """Raise InputError, before anything is trained, if a list does not fit the training images."""
    if lists:
        source, _ = open_splits(data)
        for found in lists.values():
            labeled_rows(source, str(found.path), seed=0)


def labels_note(lists: Mapping[str, LabelList]) -> str:
    """Return a line about the labeled images, to be printed below the table."""
    if not lists:
        return (
            "The paper uses SimCLR's lists of labeled images; here the same number is drawn from "
            "each class (--labels takes the lists)."
        )
    if all(found.sha256 == _PUBLISHED[share][1] for share, found in lists.items()):
        return "Labeled images: SimCLR's published lists, as in the paper."
    return "Labeled images: the given lists, which are not SimCLR's published ones."
