"""Open image files and parquet files: below a folder or by a pattern, local or behind a URL."""

from collections.abc import Callable, Sequence
from pathlib import Path

from wcl.data.folder import FolderSource
from wcl.data.folder_index import EXTENSIONS, FolderIndex
from wcl.data.matching_files import MatchingFiles, P, split_pattern
from wcl.data.parquet import ParquetSource
from wcl.data.remote_folder import RemoteFolder
from wcl.data.remote_path import RemotePath, explained, is_url
from wcl.data.source import Source
from wcl.data.voc import voc, voc_folder
from wcl.system.credentials import with_credentials
from wcl.system.errors import InputError

_LOCAL = ("file://", "local://")
_TEST_NAMES = ("test", "val", "valid", "validation")


def open_files(spec: str, split: str) -> Source | None:
    """Open one split, "train" or "test", of a path, a pattern of paths or a URL.

    Files without splits are all "train".

    Raises:
        FileNotFoundError: there is no such path.
        InputError: there are no images, or a URL cannot be read.
    """
    spec = next((spec.removeprefix(word) for word in _LOCAL if spec.startswith(word)), spec)
    spec = with_credentials(spec)
    with explained(spec):
        root, pattern = split_pattern(spec)
        if isinstance(root, RemotePath):
            return _open_remote(root, pattern, split)
    if pattern:
        return _open_pattern(MatchingFiles(root, pattern), FolderSource, split)
    if spec and root.is_file():
        return _open_file(spec, root, split)
    if not (spec and root.is_dir()):
        raise FileNotFoundError(spec)
    if (devkit := voc_folder(root)) is not None:
        return voc(devkit, split)
    index = FolderIndex(root)
    if files := index.parquet_files():
        return _open_parquet(spec, files, split)
    folder = _folder_of_split(root, split)
    if folder is None:
        return None
    return FolderSource(index if folder == root else FolderIndex(folder))


def absolute_path(spec: str) -> str:
    """Return a path or a pattern that is valid in any folder; a URL, or no path, as it is."""
    if is_url(spec):
        return spec
    root, pattern = split_pattern(spec)
    assert isinstance(root, Path)
    return str(root.absolute() / pattern) if pattern or root.exists() else spec


def _open_remote(root: RemotePath, pattern: str, split: str) -> Source | None:
    if pattern:
        return _open_pattern(MatchingFiles(root, pattern), RemoteFolder, split)
    if root.name.lower().endswith((".parquet", *EXTENSIONS)):
        return _open_file(str(root), root, split)
    for below in ("*.parquet", "data/*.parquet"):
        if files := MatchingFiles(root, below).parquet_files():
            return _open_parquet(str(root), files, split)
    if voc_folder(root) is not None:
        raise InputError(f"{root}: a VOC folder must be on this machine; copy it")
    folder = _folder_of_split(root, split)
    return None if folder is None else RemoteFolder(MatchingFiles(folder))


def _open_pattern(
    files: MatchingFiles[P], of_images: Callable[[MatchingFiles[P]], Source], split: str
) -> Source | None:
    if files.pattern.endswith(".parquet"):
        found = files.parquet_files()
        if not found:
            raise InputError(f"{files.root}: no file below this folder matches {files.pattern}")
        return _open_parquet(str(files.root), found, split)
    return of_images(files) if split == "train" else None


def _open_file(name: str, file: Path | RemotePath, split: str) -> Source | None:
    if not file.name.endswith(".parquet"):
        raise InputError(f"{name}: a single file must be .parquet; give the folder of the images")
    return ParquetSource(name, [file]) if split == "train" else None


def _open_parquet(name: str, files: Sequence[Path | RemotePath], split: str) -> Source | None:
    test = split == "test"
    chosen = [file for file in files if file.name.startswith(_TEST_NAMES) == test]
    return ParquetSource(name, chosen) if chosen else None


def _folder_of_split(root: P, split: str) -> P | None:
    """Return the folder of a split; None for "test" if the images are not split."""
    test = next((root / name for name in _TEST_NAMES if (root / name).is_dir()), None)
    if test is not None and (root / "train").is_dir():
        return root / "train" if split == "train" else test
    return root if split == "train" else None
