"""For processes that a run starts: with this folder on PYTHONPATH, a fault in the one of a rank."""

import os
import sys
from pathlib import Path

if os.environ.get("RANK") == os.environ.get("FAULT_RANK", ""):
    sys.path.append(str(Path(__file__).parents[1]))
    from injection import Fault, arm

    arm(Fault.of(os.environ["FAULT"]), Path(os.environ["FAULT_SAID"]))
