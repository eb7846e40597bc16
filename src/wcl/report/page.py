"""One HTML page that needs nothing else: styles, scripts, data and pictures are inside it.

Whatever comes from the user's disk is text: in the markup it goes through `escape`, in the data
through `json_block`, and the scripts put it on the page as text only. The page's policy allows the
scripts and styles that were put in here, by their hashes, and no others.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

_ASSETS = files("wcl.report") / "assets"
# What may not stand in a script element, and what older scripts took for line ends.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(title: str, body: str, data: Any, scripts: Sequence[str], connect: bool = False) -> str:
    """The whole page.

    Args:
        title: plain text.
        body: markup; everything in it that is not ours has been escaped.
        data: for the scripts.
        scripts: their names among the assets.
        connect: whether the page may talk to the server that it came from.
    """
    style = asset("page.css")
    script = "\n".join(asset(name) for name in scripts)
    policy = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "img-src data:" + (" blob:" if connect else ""),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if connect:
        policy.append("connect-src 'self'")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape("; ".join(policy))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{json_block(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def escape(words: object) -> str:
    """Plain text as markup, in an attribute too.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(_valid(str(words)))


def json_block(data: Any) -> str:
    """JSON that can stand in a script element whatever is in it.

    >>> json_block({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    words = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char, code in _UNSAFE.items():
        words = words.replace(char, code)
    return _valid(words)


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _valid(words: str) -> str:
    """Without what UTF-8 cannot say: halves of pairs, as names of files may have them."""
    return words.encode(errors="replace").decode()


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
