"""Training curves besides metrics.jsonl: TensorBoard and Weights & Biases."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from wcl.config import PretrainConfig


class TensorBoard:
    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Steps that are repeated after an interruption replace the earlier ones.
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{values['kind']}/{name}", value, values["step"])

    def close(self) -> None:
        self._writer.close()


class WandB:
    def __init__(self, folder: Path, config: PretrainConfig) -> None:
        import wandb

        self._run = wandb.init(dir=str(folder), name=folder.name, config=asdict(config))

    def write(self, values: dict[str, Any]) -> None:
        scalars = {f"{values['kind']}/{k}": v for k, v in values.items() if isinstance(v, float)}
        self._run.log(scalars, step=values["step"])

    def close(self) -> None:
        self._run.finish()


def curve_writers(folder: Path, config: PretrainConfig, step: int) -> list[TensorBoard | WandB]:
    """Return the writers that the settings ask for, to continue after a step."""
    writers: list[TensorBoard | WandB] = []
    if config.log.tensorboard:
        writers.append(TensorBoard(folder, step))
    if config.log.wandb:
        writers.append(WandB(folder, config))
    return writers
