"""The state of a run: everything that the coming steps depend on besides the settings."""

from typing import Any

from lightning_fabric import Fabric
from torch import Tensor

from wcl.ops.randomness import RngState
from wcl.system.errors import InputError, NotFinite
from wcl.training.monitor import Monitor
from wcl.training.setup import TrainingSetup


def capture_state(
    setup: TrainingSetup, step: int, optimizer: Any, monitor: Monitor, fabric: Fabric
) -> dict[str, Any]:
    """Return the state after a step. All processes must call this.

    Raises:
        NotFinite: the step left weights that are not finite. Its loss cannot show that, and a
            checkpoint of them could not be resumed.
    """
    crops = setup.neighbor_crops
    state = {
        "step": step,
        "data": setup.fingerprint,
        "images": len(setup.source),
        "restart": setup.schedule.restart,
        "monitor": monitor.state(),
        "neighbor_crops": {} if crops is None else crops.state(),
        "method": setup.method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "precision": fabric.strategy.precision.state_dict(),
        "random": RngState(fabric.device).state(),
    }
    _check_finite(state["method"], step)
    return state


def _check_finite(weights: dict[str, Tensor], step: int) -> None:
    for name, values in weights.items():
        if not bool(values.isfinite().all()):
            raise NotFinite(step, f"{name} is not finite after it")


def restore_state(setup: TrainingSetup, optimizer: Any, monitor: Monitor, fabric: Fabric) -> None:
    """Continue from the checkpoint of the setup.

    Raises:
        InputError: the checkpoint is damaged, or of another architecture.
    """
    saved = setup.saved
    assert saved is not None
    try:
        try:
            setup.method.load_state_dict(saved["method"])
            optimizer.load_state_dict(saved["optimizer"])
        except (RuntimeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(
                f"{setup.folder.checkpoint}: its architecture is not that of the settings"
            ) from error
        fabric.strategy.precision.load_state_dict(saved["precision"])
        RngState(fabric.device).restore(saved["random"])
        monitor.restore(saved["monitor"], fabric.device)
        if setup.neighbor_crops is not None:
            setup.neighbor_crops.restore(saved["neighbor_crops"])
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{setup.folder.checkpoint}: a damaged checkpoint of wcl") from error
    if not 0 <= saved["step"] <= setup.total_steps:
        raise InputError(
            f"{setup.folder.checkpoint}: step {saved['step']} of a run of {setup.total_steps} steps"
        )
