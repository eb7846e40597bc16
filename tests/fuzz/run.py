"""Read damaged files in a process of one's own: `python run.py SEED CASES [KIND …]`.

It ends with status 0 if every file was either read or refused properly. A crash, a hang (by an
alarm) or too much memory (by a limit) is seen by whoever started it; the file is left where it was,
and `progress` says which case it is.
"""

import faulthandler
import logging
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import chdir
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from mutations import damaged
from readers import READERS

from wcl.data.decode import UnreadableImage
from wcl.system.errors import InputError
from wcl.system.progress import console

SECONDS_PER_CASE = 20  # of the processor's time: a busy machine is no failure
PATIENCE = 600  # seconds by the clock, for a reader that waits for something
MOST_BYTES = 3 * 2**29  # more than what the process has when it begins
# Seed and case of what came out wrong once: tried whatever the seed is.
FOUND = {"tiff": [(1, 1788)], "parquet": [(1, 1609)], "checkpoint with digest": [(1, 29)]}


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def fuzz(kind: str, seed: int, cases: int) -> int:
    """Try that many cases and those of `FOUND` in the current folder; how many came out wrong."""
    reader = READERS[kind]
    samples = reader.samples()
    file = Path(reader.name)
    for sample in samples:  # the whole ones can be read, or the others would prove nothing
        file.write_bytes(reader.seal(sample))
        if kind != "cifar":
            reader.read(file)
    outcomes: Counter[str] = Counter()
    for seed, case in [*FOUND.get(kind, []), *((seed, case) for case in range(cases))]:
        random = np.random.default_rng([seed, case])
        sample = samples[int(random.integers(len(samples)))]
        content = reader.seal(damaged(sample, reader.words, random))
        file.unlink()  # not overwritten: an earlier one may still be mapped into memory
        file.write_bytes(content)
        Path("progress").write_text(f"{kind}, seed {seed}, case {case}")
        signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_CASE)
        signal.alarm(PATIENCE)
        try:
            reader.read(file)
            outcomes["read"] += 1
            if reader.refuses_all:
                outcomes["wrong"] += 1
                print(f"{kind}, seed {seed}, case {case}: not seen to be damaged")
        except (InputError, UnreadableImage) as error:
            outcomes["refused"] += 1
            if len(str(error).splitlines()) > 1 and isinstance(error, InputError):
                outcomes["wrong"] += 1
                print(f"{kind}, seed {seed}, case {case}: more than one line: {error}")
        except BaseException:
            outcomes["wrong"] += 1
            print(f"{kind}, seed {seed}, case {case}:")
            traceback.print_exc(limit=-6, file=sys.stdout)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
    print(f"{kind}: {cases} cases, {outcomes['read']} read, {outcomes['refused']} refused", end="")
    print(f", {outcomes['wrong']} wrong" if outcomes["wrong"] else "", flush=True)
    return outcomes["wrong"]


def main(seed: int, cases: int, kinds: list[str]) -> int:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    console().quiet = True
    limit_memory()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return sum(fuzz(kind, seed, cases) for kind in kinds or READERS)


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]) else 0)
