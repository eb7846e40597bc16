"""Patterns of paths, against Python's own glob."""

from glob import glob
from pathlib import Path

import pytest

from images import flat_folder
from wcl.data import absolute, open_source, open_splits
from wcl.data.matching_files import MatchingFiles, split_pattern
from wcl.system.errors import InputError

_FILES = (
    *("1.jpg", "2.png", ".hidden.jpg", "a/1.jpg", "a/b/1.jpg", "a/b/2.JPG", "a/.b/1.jpg"),
    *("b/1.jpg", "b/notes.txt", "ab/[1].jpg", "ab/c/d/e/1.jpeg", "ä/ö.jpg"),
)
_PATTERNS = (
    *("*.jpg", "**/*.jpg", "*/*.jpg", "a/**/*.jpg", "a*/*.jpg", "**/b/*.jpg", "[ab]/?.jpg"),
    *("**/*/1.jp*", "ab/[[]1].jpg", "**/c/**/*.jpeg", "*/b/**/[0-9].jpg", "**/**/1.jpg", "ä/*"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in _FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_the_same_files_as_pythons_glob_sorted_and_without_hidden_ones(
    pattern: str, tree: Path
) -> None:
    found = glob(pattern, root_dir=tree, recursive=True)  # noqa: PTH207  # Path's finds hidden ones
    wanted = sorted({f for f in found if (tree / f).is_file()}, key=str.encode)
    assert list(MatchingFiles(tree, pattern).image_paths()) == wanted
    assert wanted


def test_folders_that_cannot_match_are_not_listed(tree: Path) -> None:
    (tree / "a" / "closed").mkdir()
    (tree / "a" / "closed").chmod(0)
    try:
        assert list(MatchingFiles(tree, "b/*.jpg").image_paths()) == ["b/1.jpg"]
        assert list(MatchingFiles(tree, "a/*.jpg").image_paths()) == ["a/1.jpg"]
    finally:
        (tree / "a" / "closed").rmdir()


@pytest.mark.parametrize(
    ("spec", "root", "pattern"),
    [
        ("photos/**/*.jpg", "photos", "**/*.jpg"),
        ("*.jpg", ".", "*.jpg"),
        ("/*/a.jpg", "/", "*/a.jpg"),
        ("photos", "photos", ""),
        ("s3://bucket/a?/*.parquet", "s3://bucket", "a?/*.parquet"),
        ("s3://bucket-*/a", "s3://", "bucket-*/a"),
        ("https://host/a/*.jpg?signature", "https://host/a", "*.jpg"),
        ("https://host/a?signature", "https://host/a", ""),
        ("zip://a/*::s3://bucket/a.zip", "zip://a::s3://bucket/a.zip", "*"),
    ],
)
def test_a_pattern_starts_at_the_first_name_with_a_special_character(
    spec: str, root: str, pattern: str
) -> None:
    found, rest = split_pattern(spec)
    assert (str(found), rest) == (root, pattern)


def test_a_folder_whose_name_looks_like_a_pattern_is_a_folder(tmp_path: Path) -> None:
    folder = flat_folder(tmp_path / "photos [2024]", 2)
    assert len(open_source(str(folder))) == 2


def test_sub_folders_below_the_fixed_part_are_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat", "dog"):
        flat_folder(tmp_path / "photos" / name, 5)
    whole, chosen = open_source(str(tmp_path / "photos")), open_source(f"{tmp_path}/photos/*/*.png")
    assert chosen.classes == ["cat", "dog"]
    assert chosen.fingerprint() == whole.fingerprint()
    assert [chosen.where(i) for i in range(10)] == [whole.where(i) for i in range(10)]
    train, test = open_splits(f"{tmp_path}/photos/**/[0-3].png")
    assert (len(train), len(test)) == (6, 2)
    monkeypatch.chdir(tmp_path)
    assert absolute("photos/*/*.png") == f"{tmp_path}/photos/*/*.png"


@pytest.mark.parametrize("pattern", ["*.jpg", "**/*.parquet"])
def test_a_pattern_without_files_is_named(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no (image|file) below this folder matches \*"):
        open_source(str(flat_folder(tmp_path / "a", 1) / pattern))


def test_a_link_to_its_own_folder_is_named(tmp_path: Path) -> None:
    flat_folder(tmp_path / "a", 1)
    (tmp_path / "a" / "again").symlink_to(".")
    with pytest.raises(InputError, match="may lead back"):
        open_source(f"{tmp_path}/a/**/*.png")
