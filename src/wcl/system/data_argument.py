"""SRC, the images that a command reads, as far as it can be checked without opening them."""

from wcl.system.errors import InputError, did_you_mean
from wcl.system.paths import expanded

NAMES = ("digits", "cifar10", "cifar100")
_PATTERN = frozenset("*?[")


def check_data(spec: str) -> None:
    """Raise InputError if SRC is a path to nothing, before anything is imported that takes seconds.

    >>> check_data("digits")
    >>> check_data("cifr10")
    Traceback (most recent call last):
    wcl.system.errors.InputError: cifr10: no such data (did you mean cifar10?); give a folder ...
    """
    is_path = not (spec in NAMES or spec.startswith("hf:") or "://" in spec or _PATTERN & {*spec})
    if is_path and not expanded(spec).exists():
        raise no_such_data(spec)


def no_such_data(spec: str) -> InputError:
    """Return the error about images that do not exist."""
    return InputError(
        f"{spec or '--data'}: no such data{did_you_mean(spec, NAMES)}; give a folder of images, a "
        "parquet file or folder, the URL of one, a pattern such as photos/**/*.jpg, hf:NAME, or "
        f"one of {', '.join(NAMES)}"
    )
