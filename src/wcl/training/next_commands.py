"""Commands to copy after a run has finished."""

from wcl.config import PretrainConfig
from wcl.data import Source
from wcl.training.provenance import shell_command


def next_commands(config: PretrainConfig, source: Source) -> list[str]:
    """Return commands that measure a run and show it: by its labels, if it has any."""
    data = ["--data", config.data]
    if source.multi_labels is not None:
        first = ["eval", "lowshot", config.out, *data]
    elif source.labels is not None:
        classes = ["--classes", str(config.classes)] if config.classes else []
        first = ["eval", "knn", config.out, *data, *classes]
    else:
        first = ["duplicates", config.out, *data]
    return [shell_command("wcl", *words) for words in (first, ["report", config.out])]
