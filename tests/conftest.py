"""Importing wcl first makes `import torchvision` work beside a torch its wheel was not built for.

`wcl.system.torchvision_import` says why.
"""

from hypothesis import settings

import wcl  # noqa: F401

settings.register_profile("wcl", deadline=None)  # a busy machine is no failure
settings.load_profile("wcl")
