"""What the pictures for people have in common: colors, lettering, names short enough."""

from collections.abc import Callable

from PIL import ImageDraw, ImageFont

INK, FAINT, RULE, GROUND = "#1a1a1a", "#555555", "#c8c8c8", "#f2f2f2"


def write(
    pen: ImageDraw.ImageDraw,
    place: tuple[float, float],
    text: str,
    size: int,
    color: str = INK,
    width: float | None = None,
) -> None:
    """Draw text of a size in pixels, its upper left corner there, shortened to a width."""
    font = ImageFont.load_default(size)
    if width is not None:
        text = shortened(text, width, font.getlength)
    pen.text(place, text, color, font)


def text_width(text: str, size: int) -> float:
    """How wide `write` makes it, in pixels."""
    return ImageFont.load_default(size).getlength(text)


def shortened(text: str, most: float, length: Callable[[str], float] = len) -> str:
    """The text, or as much of its beginning and its end as fits: names differ in both.

    >>> shortened("holidays/image_0042.jpg", 16)
    'holiday…0042.jpg'
    """
    if length(text) <= most:
        return text
    kept = next((n for n in range(len(text) - 1, 0, -1) if length(_ends(text, n)) <= most), 0)
    return _ends(text, kept)


def _ends(text: str, count: int) -> str:
    """So many characters of the text, half of them from each end."""
    return f"{text[: count // 2]}…{text[len(text) - (count - count // 2) :]}"
