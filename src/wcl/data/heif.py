"""HEIC and HEIF photos, which PIL reads with the help of pillow-heif."""

from functools import cache

_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


def is_heif(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is HEIF, but not AVIF."""
    return head[4:8] == b"ftyp" and head[8:12] in _BRANDS


@cache
def register_heif() -> None:
    """Let PIL read HEIF.

    Raises:
        ImportError: pillow-heif is not installed.
    """
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
