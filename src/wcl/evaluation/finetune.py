"""Fine-tuning with few labels: the whole network is trained on the labeled images.

The classifier starts at the pooled features or, as in SimCLR v2, behind the first layer of the head
g (linear, norm and ReLU). SGD with momentum 0.9, separate learning rates for the encoder and the
classifier, cosine decay, no weight decay, random crops and flips. The result is the accuracy after
the LAST epoch; the same network, trained from scratch on the same labels, is reported beside it.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.augment import ViewMaker
from wcl.config import FinetuneConfig
from wcl.data import Source, subset
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.evaluation.crop_features import crop_and_flip
from wcl.evaluation.features import BATCH, none_can_be_read, pixel_batches
from wcl.evaluation.few_labels import is_draw, labeled_rows, write_manifest
from wcl.evaluation.linear import untrained_layer
from wcl.evaluation.preprocessing import preprocessing
from wcl.evaluation.result import Result
from wcl.models.encoder import Encoder
from wcl.ops.randomness import seed_of
from wcl.system.errors import InputError, RunError
from wcl.system.progress import track
from wcl.system.run_folder import RunFolder
from wcl.training.optimizers import lr_at

_FIRST_LAYER = 3  # modules of a head: linear, norm, ReLU
# With one label for each of 20 classes of photos, a small ResNet from scratch reached 12% after 30
# steps, 21% after 100 and no more after 200; a pretrained one 16, 17 and 18%.
_MIN_STEPS = 100
# Loss of a diverged network. With ten times the default learning rates the loss stays below 100,
# with a hundred times it exceeds 2,000; guessing gives log(classes).
_DIVERGED = 1000.0


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
    networks = [build_network(encoder, config.start, len(train.classes), config.seed)]
    details: dict[str, Any] = {"labels": config.labels}
    if is_draw(config.labels) and encoder.home is not None:
        folder = RunFolder(encoder.home).finetune
        manifest = write_manifest(folder, train, rows, config.labels, config.seed)
        details |= {} if manifest is None else {"manifest": str(manifest)}

    lrs = config.encoder_lr, config.lr
    unreadable = fit(networks[0], lrs, loader, maker, epochs, "fine-tuning")
    if config.scratch:
        with torch.random.fork_rng():
            torch.manual_seed(seed_of(config.seed, "scratch"))
            fresh = Encoder(encoder.description).to(encoder.device)
        networks.append(build_network(fresh, config.start, len(train.classes), config.seed))
        lrs = config.scratch_lr, config.scratch_lr
        fit(networks[1], lrs, loader, maker, epochs, "training from scratch")

    correct = _correct(networks, encoder, test, config.num_workers)
    top1 = [_accuracy(each[:, :1]) for each in correct]
    details |= {
        "start": config.start,
        "epochs": epochs,
        "batch_size": batch_size,
        **preprocessing(encoder),
        "top5": _accuracy(correct[0]),
    }
    if config.scratch:
        details["scratch_top1"] = top1[1]
    return Result("finetune", top1[0], len(rows) - len(unreadable), len(correct[0]), details)


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


def batch_size_for(labeled: int, limit: int) -> int:
    """Return a batch size of at most `limit` that leaves few images over at the end of an epoch.

    >>> batch_size_for(10, limit=256), batch_size_for(300, limit=256), batch_size_for(3, limit=2)
    (10, 150, 2)
    """
    steps = -(-labeled // limit)
    return max(2, labeled // steps)  # batch norm needs two images


def build_network(encoder: Encoder, start: str, classes: int, seed: int) -> nn.Sequential:
    """Return a copy of the encoder up to where the classifier starts, and a new classifier.

    Args:
        encoder: stays unchanged.
        start: "pool" for the backbone alone, "projection" for the first layer of g behind it.
        classes: number of classes.
        seed: seed of the classifier's weights.

    Returns:
        A network of two parts, the encoder and the classifier.

    Raises:
        InputError: the encoder has no head g to start from.
    """
    layers, width = [encoder.backbone], encoder.feature_dim
    if start == "projection":
        if "g" not in encoder.heads:
            raise InputError(
                "--from: the run has no head g, so there is no projection to start from; use pool"
            )
        layers += list(encoder.heads["g"].children())[:_FIRST_LAYER]
        width = encoder.description.model.head_hidden_dim
    classifier = untrained_layer((width, classes), seed).to(encoder.device)
    return nn.Sequential(copy.deepcopy(nn.Sequential(*layers)), classifier)


def fit(
    network: nn.Sequential,
    lrs: tuple[float, float],
    loader: Loader,
    maker: ViewMaker,
    epochs: int,
    description: str,
) -> set[int]:
    """Train all parameters of a network of two parts, in place.

    Args:
        network: as `build_network` returns it.
        lrs: peak learning rates of the encoder and of the classifier at batch size 256.
        loader: loads the labeled images.
        maker: makes their views.
        epochs: number of epochs.
        description: for progress and messages.

    Returns:
        The images that cannot be read.

    Raises:
        InputError: fewer than two images can be read.
        RunError: the network diverged.
    """
    assert loader.source.labels is not None
    labels = loader.source.labels.to(loader.device)
    total = epochs * loader.steps_per_epoch
    optimizer = torch.optim.SGD(
        [
            {"params": part.parameters(), "peak": lr * loader.batch_size / 256}
            for part, lr in zip(network, lrs, strict=True)
        ],
        lr=0.0,  # set in every step
        momentum=0.9,
    )
    unreadable: set[int] = set()
    last = None
    network.train()
    views = [ViewSpec(maker, 1)]
    batches = (batch for epoch in range(epochs) for batch in loader.epoch(epoch, views))
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(loader.seed, "dropout"))
        for step, batch in enumerate(track(batches, description, total)):
            unreadable.update(batch.skipped)
            if len(batch.index) < 2:
                continue  # batch norm needs two images
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step, group["peak"], 0, total)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(batch.views[0][0]), labels[batch.rows]).backward()
            optimizer.step()
            last = batch
    if last is None:
        raise InputError(f"{loader.source.name}: fewer than 2 labeled images can be read")
    with torch.no_grad():  # also detects a divergence in the last step
        loss = F.cross_entropy(network.eval()(last.views[0][0]), labels[last.rows])
    if not loss < _DIVERGED:  # true for NaN, too
        raise RunError(
            f"{description} with learning rates of {lrs[0]:g} and {lrs[1]:g}: the classifier "
            "diverged; use smaller ones"
        )
    return unreadable


@torch.no_grad()
def _correct(
    networks: Sequence[nn.Module], encoder: Encoder, test: Source, num_workers: int
) -> list[Tensor]:
    """Return for each network (n, 5): whether the first, second, … prediction is correct."""
    assert test.labels is not None
    correct: list[list[Tensor]] = [[] for _ in networks]
    batches = pixel_batches(encoder, test, num_workers)
    for pixels, index in track(batches, "testing", -(-len(test) // BATCH)):
        images, labels = encoder.normalize(pixels), test.labels[index]
        for parts, network in zip(correct, networks, strict=True):
            outputs = network.eval()(images).cpu()
            ranked = outputs.topk(min(5, outputs.shape[1]), dim=1).indices
            parts.append(ranked == labels[:, None])
    if not correct[0]:
        raise InputError(f"{test.name}: {none_can_be_read(len(test))}")
    return [torch.cat(parts) for parts in correct]


def _accuracy(correct: Tensor) -> float:
    return float(correct.any(dim=1).float().mean())
