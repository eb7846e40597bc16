"""Facts about the text on a matplotlib figure."""

from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Text


def drawn_texts(figure: Figure) -> list[Text]:
    """Return the texts that a reader sees, after drawing the figure."""
    figure.draw_without_rendering()
    hidden = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
        hidden |= {tick.label1 for tick in ticks}
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [t for t in texts if t.get_visible() and t.get_text().strip() and t not in hidden]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of texts that overlap."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn_texts(figure)]
    # Boxes include the fonts' line spacing; a pixel of it may be shared.
    boxes = [(text, box.padded(-1)) for text, box in boxes]
    pairs = combinations(boxes, 2)
    return [(a, b) for (a, first), (b, second) in pairs if first.overlaps(second)]
