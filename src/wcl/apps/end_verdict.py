"""The verdict on a run that `wcl pretrain` has finished."""

from wcl.data import first_classes, open_split
from wcl.evaluation.augmented import run_settings
from wcl.evaluation.label_free import IMAGES
from wcl.evaluation.unlabeled import quick_verdict, run_verdict
from wcl.models.encoder import load
from wcl.system.errors import InputError, RunError
from wcl.system.machine import best_device
from wcl.system.progress import log
from wcl.system.run_folder import RunFolder
from wcl.training.metrics_file import read_metrics

_MAX_SECONDS = 20


def show_verdict(folder: RunFolder, device: str) -> None:
    """Print a verdict on a finished run; a failure is reported and does not end the program.

    The encoder is compared with untrained ones only if that takes a moment.
    """
    try:
        encoder = load(folder.path, best_device(device))
        config = run_settings(encoder)
        source = first_classes(open_split(config.data, "all")[-1], config.classes)
        if _seconds(folder, min(IMAGES, len(source))) > _MAX_SECONDS:
            found = run_verdict(encoder, {})
        else:
            found = quick_verdict(encoder, source, config.num_workers)
    except (InputError, RunError) as error:
        log(f"no verdict on the run: {error}")
        return
    for answer in found.answers:
        log(f"{answer.question} {answer.answer.capitalize()}. {answer.reason}")
    log(f"Next: {found.next_step}")


def _seconds(folder: RunFolder, images: int) -> float:
    """Estimate the time of the measurement by the speed of the last epoch.

    A step passes two views forward and backward; the measurement passes two through two networks.
    """
    epochs = [line for line in read_metrics(folder.metrics) if line["kind"] == "epoch"]
    return images / max(float(epochs[-1].get("images_per_second", 0)), 1e-9) if epochs else 0.0
