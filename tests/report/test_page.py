"""Templates: whatever they are given stays text."""

import json
from typing import Any

import pytest
from jinja2 import UndefinedError

from wcl.report.page import environment, render

_WICKED = "</script><script>alert(1)</script> & \u2028 \udcff"


def waiting_page(name: str) -> str:
    values: dict[str, Any] = dict.fromkeys(("title", "kind", "lead", "command"), name)
    return render("waiting.html", (), {"name": name}, names=[name], **values)


def test_names_cannot_end_the_element_that_they_are_in() -> None:
    page = waiting_page(_WICKED)
    assert "alert(1)<" not in page
    data = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data) == {"name": _WICKED.replace("\udcff", "?")}
    assert "<code>&lt;/script&gt;" in page


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="policy"):
        environment().get_template("waiting.html").render()
