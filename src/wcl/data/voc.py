"""PASCAL VOC: photos with several objects each, in the layout of its development kit."""

from pathlib import Path
from xml.etree import ElementTree

import torch

from wcl.data.folder import ImageFiles
from wcl.system.errors import InputError
from wcl.system.progress import console, track

VOC_CLASSES = [
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
]


class VocSource(ImageFiles):
    """The images of one list of a VOC folder, with `multi_labels`.

    A class is 1 where the image has an object of it, 0 where it has none, and -1 where all its
    objects of that class are marked `difficult`. VOC's own tools leave such an image out for that
    class: its ground truth is 0, beside 1 and -1, and neither VOC's precision and recall nor its
    example classifier count it.

    The classes are VOC's twenty; where there are other objects, those that were found.
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
                if "/" in name:  # which would lead out of the folder
                    raise ValueError("a path, where the list should have a name")
                objects.append(_objects(annotation))
                self.paths.append(f"{name}.jpg")
            except (OSError, ElementTree.ParseError, LookupError, ValueError) as error:
                broken.append(f"{annotation}: {error}")
        if not self.paths:
            first = broken[0] if broken else "the list is empty"
            raise InputError(f"{root}: no image of {image_set}.txt has an annotation ({first})")
        if broken:
            count = f"{len(broken)} of {len(names)} images of {image_set}.txt"
            console().print(
                f"{root}: {count} have no annotation that can be read and are left out; "
                f"the first is {broken[0]}",
                markup=False,
                soft_wrap=True,
            )
        found = set().union(*objects)
        self.classes = VOC_CLASSES if found <= set(VOC_CLASSES) else sorted(found)
        self.multi_labels = torch.tensor(
            [[present.get(name, 0) for name in self.classes] for present in objects],
            dtype=torch.int8,
        )


def voc(root: Path, split: str) -> VocSource | None:
    """One split of a VOC folder: trainval or train, and test.

    Where there is no list of test images they are those of val, and train alone is trained on.
    """
    lists = (root / "ImageSets" / "Main").glob("*.txt")
    there = {path.stem for path in lists if path.is_file()}
    choices: tuple[str, ...]
    if {"train", "val"} <= there and "test" not in there:
        choices = ("train",) if split == "train" else ("val",)
    else:
        choices = ("trainval", "train") if split == "train" else ("test",)
    image_set = next((name for name in choices if name in there), None)
    return None if image_set is None else VocSource(root, image_set)


def voc_folder(path: Path) -> Path | None:
    """The folder of VOC's year in a development kit, or the path itself if it is one, or None."""
    parts = ("Annotations", "ImageSets/Main", "JPEGImages")
    for place in (path, path / "VOC2007"):
        if all((place / part).is_dir() for part in parts):
            return place
    return None


def _listed(path: Path) -> list[str]:
    """The names in a list, each once; what may stand behind them on their lines is left out."""
    lines = path.read_text(errors="surrogateescape").splitlines()
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Annotations have no DOCTYPE. In one, entities could be declared that grow without bounds."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("a DOCTYPE, which annotations do not have")


def _objects(annotation: Path) -> dict[str, int]:
    """Classes of the objects in an image: 1, or -1 if all of that class are difficult."""
    if not annotation.is_file():  # a pipe would keep us waiting
        raise ValueError("not a file" if annotation.exists() else "no such file")
    parser = ElementTree.XMLParser(target=_WithoutDoctype())
    root = ElementTree.parse(annotation, parser).getroot()
    if root.tag != "annotation":
        raise ValueError(f"begins with <{root.tag}>, not with <annotation>")
    found: dict[str, int] = {}
    for thing in root.iterfind("object"):
        name = thing.findtext("name", "").strip()
        if not name:
            raise ValueError("an object without a name")
        difficult = thing.findtext("difficult", "0").strip() == "1"
        found[name] = max(found.get(name, -1), -1 if difficult else 1)
    return found
