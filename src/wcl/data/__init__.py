"""Image sources, opened by the value of `--data`."""

from typing import Literal

from wcl.data.cifar import cifar
from wcl.data.digits import digits
from wcl.data.files import absolute_path, open_files
from wcl.data.folder import describe_left_out
from wcl.data.huggingface import hugging_face
from wcl.data.memory import in_memory
from wcl.data.pixel_format import measured_levels, with_format, with_own_channels
from wcl.data.source import ArraySource, Source, first_classes, held_out, limited, subset
from wcl.system.data_argument import NAMES, no_such_data
from wcl.system.errors import InputError

__all__ = [
    "ArraySource",
    "Source",
    "absolute",
    "describe_left_out",
    "first_classes",
    "held_out",
    "in_memory",
    "limited",
    "measured_levels",
    "open_source",
    "open_split",
    "open_splits",
    "subset",
    "with_format",
]


def open_source(spec: str) -> Source:
    """Open the images to pretrain on: the training split, or all images if there are no splits.

    Args:
        spec: digits, cifar10, cifar100, a folder (also VOC's), a parquet file or folder, the URL
            of one (s3://…, https://…), a pattern of paths (photos/**/*.jpg), hf:NAME.

    Raises:
        InputError: there are no such data, or no images in them.
    """
    source = _open(spec, "train")
    if source is None:
        raise InputError(f"{spec}: has no training split")
    return source


def open_splits(spec: str, test_spec: str = "") -> tuple[Source, Source]:
    """Open (train, test) to evaluate on; without a test split a fifth is held out.

    Args:
        spec: as for `open_source`.
        test_spec: source of the test images, if not the test split of `spec`.
    """
    if test_spec:
        return open_source(spec), _open(test_spec, "test") or open_source(test_spec)
    train, test = open_source(spec), _open(spec, "test")
    return held_out(train) if test is None else (train, test)


def open_split(spec: str, split: Literal["train", "test", "all"]) -> list[Source]:
    """Open the training split (all images if there are no splits), the test split, or both.

    Raises:
        InputError: there are no such data, or no such split.
    """
    names = ("train", "test") if split == "all" else (split,)
    found = [source for name in names if (source := _open(spec, name)) is not None]
    if not found:
        raise InputError(f"--split: {spec} has no {split} split; choose another")
    return found


def absolute(spec: str) -> str:
    """Return a spec that opens the same source from any folder."""
    return spec if spec in NAMES or spec.startswith("hf:") else absolute_path(spec)


def _open(spec: str, split: str) -> Source | None:
    """Open one split, "train" or "test"; data without splits are all "train"."""
    source = _opened(spec, split)
    return None if source is None else with_own_channels(source)


def _opened(spec: str, split: str) -> Source | None:
    if spec == "digits":
        return digits(split)
    if spec in ("cifar10", "cifar100"):
        return cifar(spec, split)
    if spec.startswith("hf:"):
        return hugging_face(spec, split)
    try:
        return open_files(spec, split)
    except FileNotFoundError as error:
        raise no_such_data(spec) from error
