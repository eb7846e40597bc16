"""Draws of labeled images, which nest, lists of names, and draws for low-shot evaluations."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from images import photo_folder, picture
from wcl.data import ArraySource, Source, first_classes, in_memory, open_source, subset
from wcl.evaluation.few_labels import Labels, draw, is_draw, labeled_rows, write_manifest
from wcl.ops.randomness import Integers
from wcl.system.errors import InputError


def labeled_source(sizes: Sequence[int], seed: int = 0) -> ArraySource:
    """Blank images in classes of these sizes, in a random order."""
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    pixels = torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8)
    return ArraySource("blank", pixels, labels, [f"class {n}" for n in range(len(sizes))])


def counts(source: Source, rows: Integers) -> list[int]:
    assert source.labels is not None
    chosen = source.labels[torch.from_numpy(rows)]
    return torch.bincount(chosen, minlength=len(source.classes)).tolist()


sizes = st.lists(st.integers(1, 60), min_size=1, max_size=6)


@given(sizes, st.integers(0, 2**31), st.integers(1, 100), st.integers(1, 100))
def test_a_smaller_percentage_is_part_of_a_larger_one(
    sizes: list[int], seed: int, one: int, other: int
) -> None:
    source = labeled_source(sizes, seed)
    small, large = (labeled_rows(source, f"{p}%", seed) for p in sorted((one, other)))
    assert set(small.tolist()) <= set(large.tolist())
    assert len(set(large.tolist())) == len(large)


@given(sizes, st.integers(0, 2**31), st.data())
def test_fewer_per_class_are_part_of_more_per_class(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    source = labeled_source(sizes, seed)
    few, many = sorted(data.draw(st.integers(1, min(sizes))) for _ in range(2))
    small, large = (labeled_rows(source, f"{n}-per-class", seed) for n in (few, many))
    assert set(small.tolist()) <= set(large.tolist())
    assert counts(source, large) == [many] * len(sizes)


@given(sizes, st.integers(0, 2**31), st.floats(0.1, 100))
def test_a_percentage_is_that_of_every_class_and_at_least_one_image(
    sizes: list[int], seed: int, percent: float
) -> None:
    source = labeled_source(sizes, seed)
    found = counts(source, labeled_rows(source, f"{percent:.2f}%", seed))
    for size, count in zip(sizes, found, strict=True):
        assert 1 <= count <= size
        assert count == 1 or abs(count - size * percent / 100) <= 0.51


def test_a_draw_depends_on_the_seed_and_on_nothing_else() -> None:
    source = labeled_source([50, 50])
    torch.manual_seed(1)
    first = labeled_rows(source, "10%", seed=3)
    torch.manual_seed(2)
    np.random.default_rng().random(3)
    assert first.tolist() == labeled_rows(source, "10%", seed=3).tolist()
    assert first.tolist() != labeled_rows(source, "10%", seed=4).tolist()


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("spec", ["10%", "2-per-class", "100%"])
def test_a_manifest_names_the_same_images_again(spec: str, loaded: bool, tmp_path: Path) -> None:
    """From files and from memory, with file names that every class has, and odd class names."""
    for name in ("ant", "#bee", "c w", '"quoted"'):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(10):
            picture(i, 16, 16).save(tmp_path / "data" / name / f"{i}.png")
    (tmp_path / "data").rename(tmp_path / "da\nta")  # which the first line of the list names
    source = open_source(str(tmp_path / "da\nta"))
    if loaded:
        source = in_memory(source)
        assert isinstance(source, ArraySource)
    rows = labeled_rows(source, spec, seed=5)
    path = write_manifest(tmp_path / "lists", source, rows, spec, 5)
    assert path is not None
    header, *names = path.read_text().splitlines()
    assert header.startswith("# ") and spec in header and "seed 5" in header
    assert len(names) == len(rows)
    assert labeled_rows(source, str(path), seed=0).tolist() == rows.tolist()
    assert write_manifest(tmp_path / "lists", source, rows, spec, 5) == path
    assert [path] == list((tmp_path / "lists").iterdir())


def test_a_manifest_of_digits_is_right_for_any_choice_of_classes(tmp_path: Path) -> None:
    whole = open_source("digits")
    few = first_classes(whole, 3)
    rows = labeled_rows(few, "2-per-class", seed=0)
    path = write_manifest(tmp_path / "lists", few, rows, "2-per-class", 0)
    again = subset(whole, labeled_rows(whole, str(path), seed=0))
    assert isinstance(again, ArraySource) and isinstance(few, ArraySource)
    assert torch.equal(again.pixels, few.pixels[torch.from_numpy(rows)])


@pytest.mark.parametrize(
    "form", ["{0}/{0}_{1}.JPEG", "{0}_{1}.JPEG", "{0}_{1}", "./{0}/{0}_{1}.JPEG"]
)
def test_a_list_may_name_images_by_path_by_file_or_without_the_ending(
    form: str, tmp_path: Path
) -> None:
    for name in ("n01440764", "n01443537"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(4):
            picture(i).save(tmp_path / "data" / name / f"{name}_{i}.JPEG")
    wanted = [form.format("n01443537", 2), "", form.format("n01440764", 1), "# no name"]
    (tmp_path / "list.txt").write_text("\r\n".join([*wanted, wanted[0]]))
    source = open_source(str(tmp_path / "data"))
    assert labeled_rows(source, str(tmp_path / "list.txt"), seed=0).tolist() == [1, 6]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_list_may_be_written_by_any_editor(start: bytes, end: bytes, tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data")))
    lines = [b"cat/003.jpg", b"dog/004.jpg", b""]
    (tmp_path / "list.txt").write_bytes(start + end.join(lines))
    assert labeled_rows(source, str(tmp_path / "list.txt"), seed=0).tolist() == [3, 16]


def test_numbers_that_no_image_has_are_no_classes_to_draw_from() -> None:
    source = labeled_source([5, 0, 4])
    assert counts(source, labeled_rows(source, "3-per-class", seed=0)) == [3, 0, 3]
    assert counts(source, labeled_rows(source, "50%", seed=0)) == [2, 0, 2]


def test_names_that_are_absent_are_counted_and_the_first_is_given(tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data")))
    (tmp_path / "list.txt").write_text("cat/001.jpg\ncat/999.jpg\ncow/001.jpg\n")
    with pytest.raises(InputError, match=r"2 of its 3 names .* the first is cat/999\.jpg"):
        labeled_rows(source, str(tmp_path / "list.txt"), seed=0)


def test_a_name_of_two_images_is_refused(tmp_path: Path) -> None:
    source = open_source(str(photo_folder(tmp_path / "data")))
    (tmp_path / "list.txt").write_text("001.jpg\n")
    with pytest.raises(InputError, match=r"001\.jpg matches several .* cat/001\.jpg and dog/001"):
        labeled_rows(source, str(tmp_path / "list.txt"), seed=0)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "--labels: give a percentage (10%)"),
        ("0%", "not 0%"),
        ("101%", "not 101%"),
        ("0-per-class", "not 0-per-class"),
        ("4-per-class", "class class 1 has only 3 training images"),
        ("ten", "not ten"),
        (".", "not ."),
    ],
)
def test_what_cannot_be_labeled_is_named(spec: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        labeled_rows(labeled_source([5, 3]), spec, seed=0)


def test_a_list_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        labeled_rows(labeled_source([5]), str(tmp_path / "list.txt"), seed=0)


def test_a_draw_is_told_from_a_list() -> None:
    assert [is_draw(spec) for spec in ("1%", "0.5%", "3-per-class", "list.txt")] == [
        True,
        True,
        True,
        False,
    ]


CLASSES = ("ant", "bee", "cow", "dog")


def random_labels(count: int = 60, seed: int = 0) -> Labels:
    """Several labels per image, a tenth of them in doubt."""
    generator = np.random.default_rng(seed)
    labels = (generator.random((count, 4)) < 0.4).astype(np.int8)
    labels[generator.random(labels.shape) < 0.1] = -1
    return labels


def test_a_union_has_k_positives_of_every_class_with_all_their_labels() -> None:
    labels = random_labels()
    for k in (1, 3, 8):
        drawn = draw(labels, CLASSES, k, 0, 0, "union")
        assert len(drawn.rows) <= k * len(CLASSES)
        assert ((drawn.labels == 1).sum(axis=0) >= k).all()
        assert np.array_equal(drawn.labels[drawn.rows], labels[drawn.rows] == 1)
        others = np.setdiff1d(np.arange(len(labels)), drawn.rows)
        assert (drawn.labels[others] == -1).all()


def test_a_union_of_single_labels_has_exactly_k_of_each() -> None:
    labels = np.eye(4, dtype=np.int8)[np.arange(60) % 4]
    drawn = draw(labels, CLASSES, 5, 0, 0, "union")
    assert drawn.labels[drawn.rows].sum(axis=0).tolist() == [5] * 4
    assert len(drawn.rows) == 20


def test_per_class_has_k_positives_and_three_times_as_many_negatives_for_each_of_four() -> None:
    labels = random_labels()
    for k, negatives in ((1, 3), (4, 12)):
        drawn = draw(labels, CLASSES, k, 0, 0, "per-class").labels
        assert (drawn == 1).sum(axis=0).tolist() == [k] * 4
        assert (drawn == 0).sum(axis=0).tolist() == [negatives] * 4
        assert (labels[drawn != -1] == drawn[drawn != -1]).all()
    drawn = draw(labels, CLASSES, 15, 0, 0, "per-class").labels  # fewer than 45 negatives
    assert (drawn == 0).sum(axis=0).tolist() == (labels == 0).sum(axis=0).tolist()


def test_a_draw_depends_on_seed_k_and_run_and_on_its_own_class_alone() -> None:
    labels = random_labels()

    def rows(k: int, run: int, seed: int) -> list[int]:
        found: list[int] = draw(labels, CLASSES, k, run, seed, "union").rows.tolist()
        return found

    assert rows(3, 1, 7) == rows(3, 1, 7)
    assert len({tuple(rows(3, run, seed)) for run in range(3) for seed in range(3)}) == 9
    nested = [set(rows(2, run, 0)) <= set(rows(4, run, 0)) for run in range(5)]
    assert not all(nested)  # the images of one k are not drawn from those of another
    whole, fewer = (draw(labels[:, :n], CLASSES[:n], 3, 0, 0, "per-class").labels for n in (4, 2))
    for c in range(2):
        assert np.array_equal(np.flatnonzero(whole[:, c] == 1), np.flatnonzero(fewer[:, c] == 1))
    union = draw(labels, CLASSES, 3, 0, 0, "union")
    positives = np.flatnonzero((whole == 1).any(axis=1))
    assert np.array_equal(union.rows, positives)
