"""Peak memory counts the processes that a call starts."""

import subprocess
import sys

import pytest

from benchmarks.process_tree import peak_of_tree

HALF_A_GIGABYTE = "import time; kept = b'1' * 500_000_000; time.sleep(0.5)"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_memory_of_a_child_counts() -> None:
    peak = peak_of_tree(subprocess.run, [sys.executable, "-c", HALF_A_GIGABYTE])
    assert 0.5 < peak < 1.5  # with torch
