"""Which signals ask a command to stop."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Ctrl-C; SIGTERM; SIGUSR1, SLURM's warning; the end of processor time; the end of a terminal.

    Where the last one is ignored, as by `nohup`, it is meant to be.
    """
    always = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU)
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return always if ignored else (*always, signal.SIGHUP)
