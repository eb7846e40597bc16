"""Fine-tuning with few labels: the whole network is trained on the labeled images.

The classifier starts at the pooled features or, as in SimCLR v2, behind the first layer of the head
g (linear, norm and ReLU). The result is the accuracy after the LAST epoch; the same network,
trained from scratch on the same labels, is reported beside it. With `--distill` the fine-tuned
network then teaches another one on all training images, whose accuracy becomes the result.
"""

from typing import Any

from torch import nn

from wcl.config import FinetuneConfig
from wcl.data import Source, subset
from wcl.data.loader import Loader
from wcl.evaluation.crop_features import crop_and_flip
from wcl.evaluation.distill import distill
from wcl.evaluation.few_labels import is_draw, labeled_rows, write_manifest
from wcl.evaluation.network_training import (
    batch_size_for,
    build_network,
    correct_predictions,
    fit,
    fresh_encoder,
    true_labels,
)
from wcl.evaluation.preprocessing import preprocessing
from wcl.evaluation.result import Result
from wcl.evaluation.uncertainty import accuracy, margin
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError
from wcl.system.run_folder import RunFolder

# With one label for each of 20 classes of photos, a small ResNet from scratch reached 12% after 30
# steps, 21% after 100 and no more after 200; a pretrained one 16, 17 and 18%.
_MIN_STEPS = 100


def finetune(encoder: Encoder, train: Source, test: Source, config: FinetuneConfig) -> Result:
    """Fine-tune a copy of the encoder on the labeled part of the training images, and test it."""
    rows = labeled_rows(train, config.labels, config.seed)
    if len(rows) < 2:
        raise InputError(f"--labels: at least 2 labeled images are needed, not {len(rows)}")
    batch_size = batch_size_for(len(rows), config.batch_size)
    epochs = config.epochs or epochs_for(len(rows), len(train), len(rows) // batch_size)
    loader = Loader(
        subset(train, rows), batch_size, config.seed, encoder.device, config.num_workers
    )
    maker = crop_and_flip(encoder)
    teacher = build_network(encoder, config.start, len(train.classes), config.seed)
    details: dict[str, Any] = {"labels": config.labels}
    if is_draw(config.labels) and encoder.home is not None:
        folder = RunFolder(encoder.home).finetune
        manifest = write_manifest(folder, train, rows, config.labels, config.seed)
        details |= {} if manifest is None else {"manifest": str(manifest)}

    objective = true_labels(loader.source, encoder.device)
    lrs = config.encoder_lr, config.lr
    unreadable = fit(teacher, objective, lrs, loader, maker, epochs, "fine-tuning")
    networks: dict[str, nn.Module] = {"teacher": teacher}
    if config.scratch:
        fresh = fresh_encoder(encoder, config.seed)
        scratch = build_network(fresh, config.start, len(train.classes), config.seed)
        lrs = config.scratch_lr, config.scratch_lr
        fit(scratch, objective, lrs, loader, maker, epochs, "training from scratch")
        networks["scratch"] = scratch
    if config.distill:
        networks["student"] = distill(teacher, encoder, train, rows, config)

    correct = correct_predictions(networks.values(), encoder, test, config.num_workers)
    by_name = dict(zip(networks, correct, strict=True))
    figures = {name: accuracy(each[:, 0]) for name, each in by_name.items()}
    top1 = {name: figure.score for name, figure in figures.items()}
    result = "student" if config.distill else "teacher"
    details |= {
        "start": config.start,
        "epochs": epochs,
        "batch_size": batch_size,
        **preprocessing(encoder),
        "top5": accuracy(by_name[result].any(dim=1)).score,
    }
    if config.scratch:
        details["scratch_top1"] = top1["scratch"]
        details["scratch_margin"] = margin(figures[result], figures["scratch"])
    if config.distill:
        details |= {
            "teacher_top1": top1["teacher"],
            "student_top1": top1["student"],
            "distill_epochs": config.distill_epochs,
            "distill_temperature": config.distill_temperature,
            "distill_label_weight": config.distill_label_weight,
        }
    images = len(rows) - len(unreadable), len(correct[0])
    return Result("finetune", top1[result], *images, details, figures=[figures[result]])


def epochs_for(labeled: int, images: int, steps: int) -> int:
    """Return 60 epochs if about 1% of the images or less are labeled, else 30; more if short.

    `steps` is the number of steps per epoch: 1% of ImageNet give 3,000 steps, a small folder 30.

    >>> epochs_for(12_811, 1_281_167, 50), epochs_for(128_116, 1_281_167, 500)
    (60, 30)
    >>> epochs_for(20, 1_295, 1)
    100
    """
    default = 60 if round(100 * labeled / images) <= 1 else 30
    return max(default, -(-_MIN_STEPS // steps))
