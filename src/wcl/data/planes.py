"""Images with any number of channels, beside the gray and color images of PIL."""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class Planes:
    """An image with any number of channels: a gray image of PIL for each, all of one size.

    It has the methods of PIL's images that decoding and cropping need.
    """

    channels: Sequence[Image.Image]

    @property
    def size(self) -> tuple[int, int]:
        return self.channels[0].size

    @property
    def width(self) -> int:
        return self.size[0]

    @property
    def height(self) -> int:
        return self.size[1]

    def crop(self, box: tuple[int, int, int, int]) -> "Planes":
        return Planes([channel.crop(box) for channel in self.channels])

    def resize(
        self,
        size: tuple[int, int],
        resample: Image.Resampling,
        box: tuple[float, float, float, float] | None = None,
    ) -> "Planes":
        return Planes([channel.resize(size, resample, box) for channel in self.channels])

    def getbands(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.channels))))

    def getexif(self) -> Image.Exif:
        """Return nothing: planes are upright."""
        return Image.Exif()

    def draft(self, mode: str | None, size: tuple[int, int]) -> None:
        """Do nothing: only a JPEG can be decoded at a reduced size."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def shown(self) -> Image.Image:
        """Return the first three channels as red, green and blue, or else the first as gray."""
        return Image.merge("RGB", self.channels[:3]) if len(self.channels) > 2 else self.channels[0]


Picture = Image.Image | Planes
