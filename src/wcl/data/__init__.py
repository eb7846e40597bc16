"""Image sources, opened by the value of `--data`."""

from pathlib import Path
from typing import Literal

from wcl.data.cifar import cifar
from wcl.data.digits import digits
from wcl.data.folder import FolderSource
from wcl.data.folder_index import FolderIndex
from wcl.data.huggingface import hugging_face
from wcl.data.memory import in_memory
from wcl.data.parquet import ParquetSource
from wcl.data.source import (
    ArraySource,
    Source,
    first_classes,
    held_out,
    limited,
    subset,
    with_channels,
)
from wcl.data.voc import voc, voc_folder
from wcl.system.errors import InputError, did_you_mean
from wcl.system.paths import expanded

__all__ = [
    "ArraySource",
    "Source",
    "absolute",
    "first_classes",
    "held_out",
    "in_memory",
    "limited",
    "open_source",
    "open_split",
    "open_splits",
    "subset",
    "with_channels",
]

_NAMES = ("digits", "cifar10", "cifar100")
_TEST_NAMES = ("test", "val", "valid", "validation")


def open_source(spec: str) -> Source:
    """Open the images to pretrain on: the training split, or all images if there are no splits.

    Args:
        spec: digits, cifar10, cifar100, a folder (also VOC's), a parquet file or folder, hf:NAME.

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
    path = expanded(spec)
    named = spec in _NAMES or spec.startswith("hf:") or not path.exists()
    return spec if named else str(path.absolute())


def _open(spec: str, split: str) -> Source | None:
    """Open one split, "train" or "test"; data without splits are all "train"."""
    if spec == "digits":
        return digits(split)
    if spec in ("cifar10", "cifar100"):
        return cifar(spec, split)
    if spec.startswith("hf:"):
        return hugging_face(spec, split)
    path = expanded(spec)
    if spec and path.is_file():
        if path.suffix != ".parquet":
            raise InputError(
                f"{spec}: a single file must be .parquet; give the folder of the images"
            )
        return ParquetSource(spec, [path]) if split == "train" else None
    if not (spec and path.is_dir()):
        raise InputError(
            f"{spec or '--data'}: no such data{did_you_mean(spec, _NAMES)}; give a folder of "
            f"images, a parquet file or folder, hf:NAME, or one of {', '.join(_NAMES)}"
        )
    return _open_folder(spec, path, split)


def _open_folder(spec: str, path: Path, split: str) -> Source | None:
    if (devkit := voc_folder(path)) is not None:
        return voc(devkit, split)
    index = FolderIndex(path)
    if files := index.parquet_files():
        test = split == "test"
        chosen = [file for file in files if file.name.startswith(_TEST_NAMES) == test]
        return ParquetSource(spec, chosen) if chosen else None
    test_folder = next((path / name for name in _TEST_NAMES if (path / name).is_dir()), None)
    if (path / "train").is_dir() and test_folder is not None:
        return FolderSource(FolderIndex(path / "train" if split == "train" else test_folder))
    return FolderSource(index) if split == "train" else None
