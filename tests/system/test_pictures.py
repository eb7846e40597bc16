"""Text on pictures is as long as fits."""

from PIL import Image, ImageChops, ImageDraw

from wcl.system.pictures import text_width, write


def test_written_text_stays_within_its_width() -> None:
    sheet = Image.new("RGB", (400, 40), "white")
    write(ImageDraw.Draw(sheet), (10, 10), "holidays/" + "image" * 30, 15, width=100)
    drawn = ImageChops.invert(sheet).getbbox()
    assert drawn is not None
    left, _, right, _ = drawn
    assert left > 5 and 80 < right <= 111
    assert text_width("holidays/" + "image" * 30, 15) > 400
