"""What the pictures for people have in common: colors, lettering, names short enough."""

from PIL import ImageDraw, ImageFont

from wcl.system.paths import shortened

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
