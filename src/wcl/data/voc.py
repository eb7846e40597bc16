"""PASCAL VOC in the layout of its development kit: photos with several objects each."""

from pathlib import Path
from xml.etree import ElementTree

import torch

from wcl.data.folder import ImageFiles
from wcl.data.matching_files import P
from wcl.system.errors import InputError
from wcl.system.progress import log, track

# fmt: off
VOC_CLASSES = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
]
# fmt: on


class VocSource(ImageFiles):
    """The images of one list of a VOC folder, with `multi_labels`.

    A class is 1 if the image has an object of it, 0 if it has none, and -1 if all its objects of
    that class are marked `difficult`. VOC's own tools ignore such an image for that class.

    The classes are VOC's twenty, or all that occur if there are others.
    """

    def __init__(self, root: Path, image_set: str) -> None:
        """Read the list ImageSets/Main/`image_set`.txt of the folder `root` (such as VOC2007)."""
        self.name = str(root)
        self.root = root / "JPEGImages"
        self.paths: list[str] = []
        objects: list[dict[str, int]] = []
        broken: list[str] = []
        names = _listed(root / "ImageSets" / "Main" / f"{image_set}.txt")
        for name in track(names, "reading annotations"):
            annotation = root / "Annotations" / f"{name}.xml"
            try:
                if "/" in name:  # it could lead out of the folder
                    raise ValueError("a path instead of a name in the list")
                objects.append(_objects(annotation))
                self.paths.append(f"{name}.jpg")
            except (OSError, ElementTree.ParseError, LookupError, ValueError) as error:
                broken.append(f"{annotation}: {error}")
        if not self.paths:
            first = broken[0] if broken else "the list is empty"
            raise InputError(f"{root}: no image of {image_set}.txt has an annotation ({first})")
        if broken:
            log(
                f"{root}: {len(broken)} of {len(names)} images of {image_set}.txt are left out "
                f"because their annotations cannot be read; the first is {broken[0]}"
            )
        found = set().union(*objects)
        self.classes = VOC_CLASSES if found <= set(VOC_CLASSES) else sorted(found)
        self.multi_labels = torch.tensor(
            [[present.get(name, 0) for name in self.classes] for present in objects],
            dtype=torch.int8,
        )


def voc(root: Path, split: str) -> VocSource | None:
    """Open one split of a VOC folder: trainval or train, and test.

    Without a list of test images, val is the test split and only train is trained on.
    """
    lists = (root / "ImageSets" / "Main").glob("*.txt")
    existing = {path.stem for path in lists if path.is_file()}
    choices: tuple[str, ...]
    if {"train", "val"} <= existing and "test" not in existing:
        choices = ("train",) if split == "train" else ("val",)
    else:
        choices = ("trainval", "train") if split == "train" else ("test",)
    image_set = next((name for name in choices if name in existing), None)
    return None if image_set is None else VocSource(root, image_set)


def voc_folder(path: P) -> P | None:
    """Return the VOC folder: the path itself, VOC2007 in it, or None."""
    parts = ("Annotations", "ImageSets/Main", "JPEGImages")
    for place in (path, path / "VOC2007"):
        if all((place / part).is_dir() for part in parts):
            return place
    return None


def _listed(path: Path) -> list[str]:
    """Return the first word of every line, without duplicates."""
    lines = path.read_text(errors="surrogateescape", encoding="utf-8").splitlines()
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Refuses a DOCTYPE: annotations have none, and its entities could expand without bounds."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("a DOCTYPE, which annotations do not have")


def _objects(annotation: Path) -> dict[str, int]:
    """Return the classes of the objects in an image: 1, or -1 if all of a class are difficult."""
    if not annotation.is_file():  # reading a pipe would block
        raise ValueError("not a file" if annotation.exists() else "no such file")
    parser = ElementTree.XMLParser(target=_WithoutDoctype())
    root = ElementTree.parse(annotation, parser).getroot()
    if root.tag != "annotation":
        raise ValueError(f"begins with <{root.tag}>, not with <annotation>")
    found: dict[str, int] = {}
    for item in root.iterfind("object"):
        name = item.findtext("name", "").strip()
        if not name:
            raise ValueError("an object without a name")
        difficult = item.findtext("difficult", "0").strip() == "1"
        found[name] = max(found.get(name, -1), -1 if difficult else 1)
    return found
