"""`hf:NAME`: image data sets that the `datasets` library can open."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from wcl.data.decode import UnreadableImage, open_image
from wcl.data.planes import Picture
from wcl.data.source import Source
from wcl.system.errors import InputError

_TIMEOUT = 5.0  # seconds
_SPLITS = {"train": ("train",), "test": ("test", "validation", "valid", "val")}


class HuggingFaceSource(Source):
    """One split of a data set with a column of images, and a column of labels if there is one."""

    def __init__(self, name: str, data: Any) -> None:
        import datasets

        self.name = name
        images = [c for c, f in data.features.items() if isinstance(f, datasets.Image)]
        if not images:
            raise InputError(f"{name}: no column of images among {', '.join(data.features)}")
        self._column = images[0]
        # Not decoded by the library, so that damaged images can be skipped.
        self._data = data.cast_column(self._column, datasets.Image(decode=False))
        for column, feature in data.features.items():
            if isinstance(feature, datasets.ClassLabel):
                values = list(data[column])
                if all(value is not None and value >= 0 for value in values):
                    self.labels, self.classes = torch.tensor(values), list(feature.names)
                break

    def __len__(self) -> int:
        return len(self._data)

    def image(self, index: int) -> Picture:
        found = self._data[index][self._column] or {}
        if found.get("bytes") is not None:
            return open_image(found["bytes"])
        if found.get("path"):
            return open_image(Path(found["path"]))
        raise UnreadableImage("no image in this row")

    def where(self, index: int) -> str:
        return f"{self.name} {self._data.split} row {index}"

    def _identity(self, times: bool) -> Iterator[bytes]:
        yield self._data._fingerprint.encode()  # the library's digest of the data


def hugging_face(spec: str, split: str) -> Source | None:
    """Open `hf:NAME` or `hf:NAME:CONFIG`; None if it has no such split.

    Raises:
        InputError: there is no such data set, or the hub cannot be reached.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"{spec}: needs the datasets library; pip install 'wcl-torch[hf]'"
        ) from error
    name, _, config = spec.removeprefix("hf:").partition(":")
    offline = not Path(name).exists() and not _hub_is_reachable()
    try:
        with _offline() if offline else nullcontext():
            found = datasets.load_dataset(name, config or None)
    except Exception as error:  # the library raises a dozen types for a bad name or network
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if offline:
            reason = "the hub cannot be reached, and it was not downloaded before"
        raise InputError(f"{spec}: the datasets library cannot open it ({reason})") from error
    for key in _SPLITS[split]:
        if key in found:
            return HuggingFaceSource(spec, found[key])
    return None


def _hub_is_reachable() -> bool:
    """Ask the hub once; the library would try six times in half a minute."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]  # not re-exported

    try:
        get_session().head(constants.ENDPOINT, timeout=_TIMEOUT)
    except Exception:  # of either HTTP library that versions of the hub use
        return False
    return True


@contextmanager
def _offline() -> Iterator[None]:
    """Make the library use only its local cache."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
