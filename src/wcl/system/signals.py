"""The signals that ask a command to stop."""

import signal

# Ctrl-C; what schedulers send; SLURM's warning; the limit of processor time; the end of the
# terminal; Ctrl-Break on Windows, which lacks the three before it.
_NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGXCPU", "SIGHUP", "SIGBREAK")


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals of this system that ask to stop; not SIGHUP if `nohup` ignores it."""
    known = (signal.Signals[name] for name in _NAMES if hasattr(signal, name))
    return tuple(
        number
        for number in known
        if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN
    )
