"""Names on pictures: on one line, and as long as fits."""

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageDraw

from wcl.system.paths import one_line
from wcl.system.pictures import shortened, text_width, write


@given(st.text(), st.integers(1, 30))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= most
    if len(text) <= most:
        assert short == text
    else:
        start, _, end = short.partition("…") if "…" not in text else (short, "", "")
        assert "…" in text or (text.startswith(start) and text.endswith(end))
        assert len(short) == most


@given(st.text())
def test_one_line_is_printable_and_what_is_printable_stays(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line == text or not text.isprintable()


def test_written_text_stays_within_its_width() -> None:
    sheet = Image.new("RGB", (400, 40), "white")
    write(ImageDraw.Draw(sheet), (10, 10), "holidays/" + "image" * 30, 15, width=100)
    drawn = ImageChops.invert(sheet).getbbox()
    assert drawn is not None
    left, _, right, _ = drawn
    assert left > 5 and 80 < right <= 111
    assert text_width("holidays/" + "image" * 30, 15) > 400
