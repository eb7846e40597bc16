"""Credentials in URLs."""

import pytest

from wcl.system.credentials import (
    remember_credentials,
    with_credentials,
    without_credentials,
)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://me:secret@host/a@b", "https://host/a@b"),
        ("https://secret@host", "https://host"),
        ("sftp://me:se@cret@host/photos", "sftp://host/photos"),
        ("https://host/my photos/?sig=secret&x", "https://host/my photos/"),
        ("simplecache::https://me:secret@host/a?b", "simplecache::https://host/a"),
        ("403, url='http://host/a?sig=secret'", "403, url='http://host/a'"),
        # What is no secret stays.
        ("abfs://container@account.dfs.core.windows.net/a", None),
        ("sftp://me@host/photos", None),
        ("s3://bucket/what?.jpg", None),
        ("hf:beans:me@x", None),
        ("photos/a@b?", None),
    ],
)
def test_only_secrets_are_removed(url: str, public: str | None) -> None:
    assert without_credentials(url) == (url if public is None else public)


def test_they_are_remembered_for_the_url_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WCL_URLS", raising=False)
    url = "https://me:secret@host/photos"
    assert with_credentials("https://host/photos") == "https://host/photos"
    assert remember_credentials(url) == "https://host/photos"
    assert remember_credentials("s3://bucket") == "s3://bucket"
    assert with_credentials("https://host/photos") == url
    monkeypatch.delenv("WCL_URLS")
