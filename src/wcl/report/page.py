"""HTML pages that need nothing else: styles, scripts, data and pictures are inside them.

Names from the user's disk are never trusted: templates escape them, `tojson` escapes them in the
data, and the scripts insert them as text. The content security policy allows only the script and
the style of the page, by their hashes.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

_ASSETS = files("wcl.report") / "assets"


def render(
    template: str, scripts: Sequence[str], data: Any, live: bool = False, **values: Any
) -> str:
    """Return a page.

    Args:
        template: its file name.
        scripts: file names of its scripts, which run one after the other.
        data: what the scripts read, as JSON.
        live: whether the page may connect to the server that it came from.
        values: what the template shows.
    """
    style = (_ASSETS / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in scripts)
    policy = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        f"img-src data:{' blob:' if live else ''}",
        "base-uri 'none'",
        "form-action 'none'",
        *(["connect-src 'self'"] if live else []),
    ]
    page = (
        environment()
        .get_template(template)
        .render(
            style=Markup(style),
            script=Markup(script),
            policy="; ".join(policy),
            data=data,
            **values,
        )
    )
    return page.encode(errors="replace").decode()  # names of files may hold lone surrogates


@cache
def environment() -> Environment:
    """Return the Jinja environment of the templates."""
    environment = Environment(
        loader=PackageLoader("wcl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "allow_nan": False,
    }
    environment.filters["code"] = _code
    return environment


def _code(text: str) -> Markup:
    """Return text in which the parts between backquotes are code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
