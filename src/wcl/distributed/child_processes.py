"""Starting the other processes of a run on this machine."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wcl.config import PretrainConfig
from wcl.config.run_config import write_config

Children = list[subprocess.Popen[bytes]]

_GRACE_PERIOD = 30  # seconds that children have to end by themselves after the run


@contextmanager
def start_children(config: PretrainConfig, resume: bool) -> Iterator[Children]:
    """Start ranks 1 and up, and make this process rank 0, for as long as the context lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    inherited, rank_zero = os.environ.copy(), _variables(0, config.devices, port)
    children: Children = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.yaml"
        write_config(config, settings)
        command = [sys.executable, "-m", "wcl", "pretrain", "--config", str(settings)]
        command += [f"--out={config.out}", *(["--resume"] if resume else [])]
        try:
            for rank in range(1, config.devices):
                children.append(
                    # In its own process group: Ctrl-C is for rank 0, which stops the others.
                    subprocess.Popen(
                        command,
                        env=inherited | _variables(rank, config.devices, port),
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                    )
                )
            os.environ.update(rank_zero)
            yield children
            with suppress(subprocess.TimeoutExpired):  # everything is saved by now
                for child in children:
                    child.wait(_GRACE_PERIOD)
        finally:
            for child in children:
                child.kill()
                child.wait()
            for name in rank_zero:
                os.environ.pop(name, None)
            os.environ.update({name: inherited[name] for name in rank_zero if name in inherited})


def _variables(rank: int, size: int, port: int) -> dict[str, str]:
    """Return the environment variables that torchrun sets on a single machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "wcl",
    }
