"""Importing wcl first makes `import torchvision` work beside a torch its wheel was not built for.

`wcl.system.torchvision_import` says why.
"""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

import wcl  # noqa: F401
from wcl.data import resize

settings.register_profile("wcl", deadline=None)  # a busy machine is no failure
settings.load_profile("wcl")

# Shells start background jobs with SIGINT ignored, and children inherit that: a test that stops a
# process with Ctrl-C would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def pil_resizes() -> Iterator[None]:
    """Resize crops with PIL on any CPU: what is compared with PIL then agrees bit for bit."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(resize, "RESIZER", "PIL")
        yield
