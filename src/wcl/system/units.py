"""Durations and sizes for people."""


def duration(seconds: float) -> str:
    """Return a duration for people.

    >>> duration(75), duration(3700)
    ('1 min 15 s', '1 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(count: float) -> str:
    """Return a number of bytes for people.

    >>> size(5_247_660_032), size(12_300_000)
    ('5.2 GB', '12 MB')
    """
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
