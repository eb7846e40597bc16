"""Hints at the setting that a user meant, also by the words of other programs."""

from collections.abc import Iterable

from wcl.system.errors import did_you_mean

_OTHER_WORDS = {
    "amp": "precision bf16-mixed",
    "arch": "model.backbone",
    "batch": "batch_size",
    "bf16": "precision bf16-mixed",
    "bs": "batch_size",
    "data_dir": "data",
    "data_path": "data",
    "dataset": "data",
    "fp16": "precision 16-mixed",
    "gpus": "devices",
    "img_size": "image_size",
    "input_size": "image_size",
    "learning_rate": "optim.lr",
    "max_epochs": "epochs",
    "max_time": "minutes",
    "num_epochs": "epochs",
    "optimizer": "optim.name",
    "output": "out",
    "output_dir": "out",
    "pretrained": "model.weights timm",
    "random_seed": "seed",
    "save_dir": "out",
    "size": "image_size",
    "tau": "loss.temperature",
    "temperature": "loss.temperature",
    "warmup": "optim.warmup_epochs",
    "wd": "optim.weight_decay",
    "workers": "num_workers",
}
"""Names of settings in other programs, and the name here, with a value where they imply one."""


def unknown(name: str, known: Iterable[str], dashes: str = "--") -> str:
    """Return the line about a setting that does not exist, or is a group of settings.

    Args:
        name: the setting.
        known: the settings that exist.
        dashes: what precedes a setting where it is written; empty for a file.

    >>> unknown("batch-size", ["batch_size", "optim.lr"])
    '--batch-size: no such setting; use --batch_size'
    >>> unknown("lr", ["batch_size", "optim.lr"])
    '--lr: no such setting; use --optim.lr'
    """
    known = list(known)
    for setting in known:
        if setting.startswith(f"{name}."):
            return f"--{name}: a group of settings; set one of them, such as {dashes}{setting}"
    if meant := _meant(name.replace("-", "_").lower(), known):
        settings = " or ".join(f"{dashes}{setting}" for setting in meant)
        return f"--{name}: no such setting; use {settings}"
    return f"--{name}: no such setting{did_you_mean(name, known)}; --help lists them"


def _meant(word: str, known: list[str]) -> list[str]:
    """Return the settings that a word means: by itself, elsewhere, or inside a group."""
    if word in known:
        return [word]
    other = _OTHER_WORDS.get(word, "")
    setting = other.partition(" ")[0]
    # The settings of a method are known only once its module is imported.
    if setting in known or (setting.startswith("loss.") and "loss" in known):
        return [other]
    return [setting for setting in known if setting.endswith(f".{word}")]
