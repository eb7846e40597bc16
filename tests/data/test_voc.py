"""PASCAL VOC as a source: splits, several labels per image, difficult objects, broken files."""

import os
from pathlib import Path

import pytest
import torch
from torchvision.datasets import VOCDetection

import wcl
from images import flat_folder, picture
from runs import photo_run
from voc_kit import annotation, scenes, voc_kit
from wcl.cli import run_command
from wcl.data import in_memory, limited, open_source, open_splits, subset, with_format
from wcl.data.decode import UnreadableImage
from wcl.data.folder import FolderSource
from wcl.data.voc import VOC_CLASSES
from wcl.evaluation.overlap import overlap
from wcl.system.errors import InputError

BILLION_LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE annotation [
 <!ENTITY a "cat"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
 <!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">
]>
<annotation><object><name>&d;</name><difficult>0</difficult></object></annotation>
"""


def labels_of(source: wcl.data.Source, row: int) -> dict[str, int]:
    """The labels of an image that are not 0, by name."""
    assert source.multi_labels is not None
    values = source.multi_labels[row].tolist()
    return {name: v for name, v in zip(source.classes, values, strict=True) if v}


def test_labels_are_present_absent_or_in_doubt_by_class(tmp_path: Path) -> None:
    images = {
        "000001": ["cat", "person", "person"],
        "000002": ["dog?"],
        "000003": ["dog?", "dog", "cat?", "cat?"],
        "000004": [],
    }
    source = open_source(str(voc_kit(tmp_path, {"trainval": images})))
    assert source.classes == VOC_CLASSES
    assert source.labels is None
    assert source.multi_labels is not None
    assert source.multi_labels.shape == (4, 20)
    found = [labels_of(source, row) for row in range(4)]
    assert found == [{"cat": 1, "person": 1}, {"dog": -1}, {"dog": 1, "cat": -1}, {}]
    assert source.where(2).endswith("VOC2007/JPEGImages/000003.jpg")


def test_labels_agree_with_torchvisions_reading_of_the_same_files(tmp_path: Path) -> None:
    kit = voc_kit(tmp_path / "VOCdevkit", {"trainval": scenes(30)})
    reference = VOCDetection(str(tmp_path), year="2007", image_set="trainval")
    source = open_source(str(kit))
    assert len(source) == len(reference)
    for row, (_, target) in enumerate(reference):
        things = target["annotation"].get("object", [])
        easy = {thing["name"] for thing in things if thing["difficult"] == "0"}
        doubtful = {thing["name"] for thing in things} - easy
        assert labels_of(source, row) == dict.fromkeys(easy, 1) | dict.fromkeys(doubtful, -1)


def test_the_twenty_classes_are_alphabetical_and_others_are_those_found(tmp_path: Path) -> None:
    assert sorted(VOC_CLASSES) == VOC_CLASSES
    assert len(VOC_CLASSES) == 20
    kit = voc_kit(tmp_path, {"trainval": {"a": ["zebra", "cat"], "b": ["ant?"]}})
    assert open_source(str(kit)).classes == ["ant", "cat", "zebra"]


@pytest.mark.parametrize(
    ("lists", "train", "test"),
    [
        (("trainval", "train", "val", "test"), "trainval", "test"),
        (("train", "val", "test"), "train", "test"),
        (("trainval", "train", "val"), "train", "val"),
        (("train", "val"), "train", "val"),
    ],
)
def test_splits_never_share_an_image(
    lists: tuple[str, ...], train: str, test: str, tmp_path: Path
) -> None:
    names = {"train": ["1", "2"], "val": ["3"], "trainval": ["1", "2", "3"], "test": ["4"]}
    kit = voc_kit(tmp_path, {part: {n: ["cat"] for n in names[part]} for part in lists})
    for path in (kit, kit / "VOC2007"):
        for source, expected in zip(open_splits(str(path)), (train, test), strict=True):
            found = [Path(source.where(row)).stem for row in range(len(source))]
            assert found == names[expected]


def test_without_a_test_list_a_fifth_is_held_out(tmp_path: Path) -> None:
    train, test = open_splits(str(voc_kit(tmp_path, {"trainval": scenes(20)})))
    assert (len(train), len(test)) == (16, 4)
    assert test.multi_labels is not None
    assert test.multi_labels.shape == (4, 20)


def test_an_ordinary_folder_is_still_one(tmp_path: Path) -> None:
    (flat_folder(tmp_path / "JPEGImages").parent / "Annotations").mkdir()
    assert isinstance(open_source(str(tmp_path)), FolderSource)


BROKEN = {
    "cut short": annotation(["cat"])[:40],
    "empty": "",
    "nameless": "<annotation><object><name/></object></annotation>",
    "something else": "<html><body/></html>",
    "billion laughs": BILLION_LAUGHS,
    "billion laughs in utf-16": BILLION_LAUGHS.replace('"1.0"', '"1.0" encoding="utf-16"'),
}


@pytest.mark.parametrize("kind", [*BROKEN, "missing"])
def test_a_broken_annotation_is_left_out_counted_and_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = voc_kit(tmp_path, {"trainval": {"1": ["cat"], "2": ["dog"], "3": ["dog"]}})
    broken = kit / "VOC2007" / "Annotations" / "2.xml"
    broken.unlink()
    if kind != "missing":
        broken.write_bytes(BROKEN[kind].encode("utf-16" if "utf-16" in kind else "utf-8"))
    source = open_source(str(kit))
    assert [labels_of(source, row) for row in range(len(source))] == [{"cat": 1}, {"dog": 1}]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "1 of 3 images" in said
    assert str(broken) in said
    if "laughs" in kind:
        assert "DOCTYPE" in said


def test_when_no_annotation_can_be_read_that_is_an_error(tmp_path: Path) -> None:
    kit = voc_kit(tmp_path, {"trainval": {"1": ["cat"]}})
    (kit / "VOC2007" / "Annotations" / "1.xml").write_text(BILLION_LAUGHS)
    with pytest.raises(InputError, match=r"no image of trainval.txt has an annotation .*DOCTYPE"):
        open_source(str(kit))
    (kit / "VOC2007" / "ImageSets" / "Main" / "trainval.txt").write_text("\n")
    with pytest.raises(InputError, match="the list is empty"):
        open_source(str(kit))


@pytest.mark.parametrize("kind", ["outside", "absolute", "pipe", "folder", "too long"])
def test_only_files_of_the_kit_are_read(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = voc_kit(tmp_path / "kit", {"trainval": {"1": ["cat"], "2": ["dog"]}})
    year = kit / "VOC2007"
    (tmp_path / "secret.xml").write_text(annotation(["person"]))
    outside = {"outside": "../../../secret", "absolute": str(tmp_path / "secret")}
    name = outside.get(kind, "x" * 300 if kind == "too long" else "3")
    if kind == "pipe":
        os.mkfifo(year / "Annotations" / "3.xml")
        os.mkfifo(year / "ImageSets" / "Main" / "test.txt")  # nor is it a list
    elif kind == "folder":
        (year / "Annotations" / "3.xml").mkdir()
    (year / "ImageSets" / "Main" / "trainval.txt").write_text(f"1\n{name}\n2\n")
    source = open_source(str(kit))
    assert [Path(source.where(row)).stem for row in range(len(source))] == ["1", "2"]
    assert "1 of 3 images of trainval.txt are left out" in capsys.readouterr().err
    train, test = open_splits(str(kit))
    assert (len(train), len(test)) == (1, 1)  # for want of a list of test images


def test_a_photo_that_is_a_pipe_is_unreadable(tmp_path: Path) -> None:
    kits = [voc_kit(tmp_path / name, {"trainval": {"1": ["cat"]}}) for name in ("a", "b")]
    for kit in kits:
        photo = kit / "VOC2007" / "JPEGImages" / "1.jpg"
        photo.unlink()
        os.mkfifo(photo)
    first, second = (open_source(str(kit)) for kit in kits)
    with pytest.raises(UnreadableImage, match="not a file"):
        first.image(0)
    assert overlap(first, second) == []


def test_a_missing_photo_is_unreadable(tmp_path: Path) -> None:
    kit = voc_kit(tmp_path, {"trainval": {"1": ["cat"], "2": ["dog"]}})
    (kit / "VOC2007" / "JPEGImages" / "1.jpg").unlink()
    with pytest.raises(UnreadableImage, match="no such file"):
        open_source(str(kit)).image(0)


def test_the_fingerprint_tells_names_and_labels_apart(tmp_path: Path) -> None:
    kits = [
        {"1": ["cat"], "2": ["dog"]},
        {"1": ["cat"], "2": ["dog"]},
        {"1": ["cat"], "3": ["dog"]},
        {"1": ["cat"], "2": ["dog?"]},
    ]
    one, same, renamed, relabeled = (
        open_source(str(voc_kit(tmp_path / str(i), {"trainval": k}))).fingerprint()
        for i, k in enumerate(kits)
    )
    assert one == same
    assert len({one, renamed, relabeled}) == 3


def test_labels_stay_with_their_images_wherever_these_go(tmp_path: Path) -> None:
    kit = voc_kit(tmp_path, {"trainval": scenes(12)})
    for name in scenes(12):
        picture(int(name), 16, 16).save(kit / "VOC2007" / "JPEGImages" / f"{name}.jpg")
    source = open_source(str(kit))
    loaded = in_memory(source)
    assert isinstance(loaded, wcl.data.ArraySource)
    for whole in (source, loaded):
        few = limited(whole, 5, seed=0)
        assert few.multi_labels is not None
        for row in range(5):
            place = next(i for i in range(12) if source.where(i) == few.where(row))
            assert labels_of(few, row) == labels_of(source, place)
    gray = with_format(loaded, 1)
    assert torch.equal(gray.multi_labels, source.multi_labels)  # type: ignore[arg-type]
    last = subset(loaded, torch.tensor([11]).numpy())
    assert labels_of(last, 0) == labels_of(source, 11)


def test_it_is_described_by_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kit = voc_kit(tmp_path, {"trainval": {"1": ["ant", "bee"], "2": ["bee", "ant?"]}})
    assert run_command(["data", str(kit)]) == 0
    said = capsys.readouterr().out
    assert "2 with 1–2 images each" in said and "classes: ant, bee" in said


def test_it_can_be_pretrained_on_with_neighbors_crops_too(tmp_path: Path) -> None:
    kit = voc_kit(tmp_path / "kit", {"trainval": scenes(16)})
    crops = {"count": 2, "size": 32, "warmup": 1}
    run = photo_run(kit, tmp_path / "run", epochs=2, crops=crops)
    assert (run / "encoder.safetensors").is_file()


def test_evaluations_of_one_label_per_image_and_choices_of_classes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = voc_kit(tmp_path / "kit", {"trainval": scenes(16)})
    run = photo_run(kit, tmp_path / "run", epochs=1)
    capsys.readouterr()
    assert run_command(["eval", "knn", str(run), "--data", str(kit)]) == 2
    assert "has no labels" in capsys.readouterr().err
    words = ["eval", "lowshot", str(run), "--data", str(kit), "--classes", "2"]
    assert run_command(words) == 2
    assert "has several labels per image" in capsys.readouterr().err
