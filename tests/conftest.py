"""Importing wcl first makes `import torchvision` work beside a torch its wheel was not built for.

`wcl.system.torchvision_import` says why.
"""

import signal

from hypothesis import settings

import wcl  # noqa: F401

settings.register_profile("wcl", deadline=None)  # a busy machine is no failure
settings.load_profile("wcl")

# Shells start background jobs with SIGINT ignored, and children inherit that: a test that stops a
# process with Ctrl-C would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
