"""Credentials in URLs: remembered for opening them, left out of all that is printed or written."""

import json
import os
import re

_VARIABLE = "WCL_URLS"  # the processes that a command starts inherit it
_TOKEN = re.compile(r"(https?://)[^/?]*@")
# A password is required: in abfs://container@account the part before the @ is no secret.
_PASSWORD = re.compile(r"(\w://)[^/\s@]*:[^/\s]*@")
_QUERY = re.compile(r"(https?://[^?]*)\?[^\s'\"]*")  # may be a signature


def without_credentials(text: str) -> str:
    """Remove passwords, and the queries of HTTP addresses, from the URLs in a text.

    >>> without_credentials("https://me:secret@example.org/photos/?signature=secret")
    'https://example.org/photos/'
    """
    return _QUERY.sub(r"\1", _PASSWORD.sub(r"\1", _TOKEN.sub(r"\1", text)))


def remember_credentials(url: str) -> str:
    """Return a URL without credentials, which `with_credentials` restores in this command."""
    public = without_credentials(url)
    if public != url:
        os.environ[_VARIABLE] = json.dumps(_remembered() | {public: url})
    return public


def with_credentials(url: str) -> str:
    """Return a URL with the credentials that were remembered for it, if any."""
    return _remembered().get(url, url)


def _remembered() -> dict[str, str]:
    found: dict[str, str] = json.loads(os.environ.get(_VARIABLE, "{}"))
    return found
