"""`hf:NAME`: any image data set that the `datasets` library can open."""

from typing import Any

import torch
from PIL import Image

from wcl.data.source import Source
from wcl.errors import InputError

_SPLITS = {"train": ("train",), "test": ("test", "validation", "valid", "val")}


class HuggingFaceSource(Source):
    """One split of a data set with a column of images and perhaps one of class labels."""

    def __init__(self, name: str, data: Any) -> None:
        import datasets

        self.name = name
        images = [c for c, f in data.features.items() if isinstance(f, datasets.Image)]
        if not images:
            raise InputError(f"{name}: no column of images among {', '.join(data.features)}")
        self._column = images[0]
        self._data = data
        for column, feature in data.features.items():
            if isinstance(feature, datasets.ClassLabel):
                labels = torch.tensor(data[column])
                if (labels >= 0).all():
                    self.labels, self.classes = labels, list(feature.names)
                break

    def __len__(self) -> int:
        return len(self._data)

    def image(self, index: int) -> Image.Image:
        image: Image.Image = self._data[index][self._column]
        return image

    def where(self, index: int) -> str:
        return f"{self.name} row {index}"


def hugging_face(spec: str, split: str) -> Source | None:
    """Open `hf:NAME` or `hf:NAME:CONFIG`; None if it has no such split."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(f"{spec}: needs the datasets library; pip install 'wcl[hf]'") from error
    name, _, config = spec.removeprefix("hf:").partition(":")
    try:
        found = datasets.load_dataset(name, config or None)
    except Exception as error:  # the library raises a dozen kinds, each for a bad name or network
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{spec}: the datasets library cannot open it ({reason})") from error
    for key in _SPLITS[split]:
        if key in found:
            return HuggingFaceSource(spec, found[key])
    return None
