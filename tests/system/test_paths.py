"""Names on one line, and as long as fits."""

from hypothesis import given
from hypothesis import strategies as st

from wcl.system.paths import one_line, shortened


@given(st.text(), st.integers(1, 30))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    else:
        start, _, end = short.partition("…") if "…" not in text else (short, "", "")
        assert "…" in text or (text.startswith(start) and text.endswith(end))
        assert len(short) == limit


@given(st.text())
def test_one_line_is_printable_and_what_is_printable_stays(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line == text or not text.isprintable()
