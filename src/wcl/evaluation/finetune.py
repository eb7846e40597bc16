"""Fine-tuning with few labels: the whole network is trained on the labeled images alone.

The classifier sits on the pooled features or, as in SimCLR v2, on the first layer of the head g
(linear, norm and ReLU). SGD with momentum 0.9, one rate for the encoder and one for the classifier,
cosine, no weight decay, random crops and flips. The accuracy of the LAST epoch is the result;
beside it stands that of the same network, trained on the same labels from scratch.
"""

import copy
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.augment import ViewMaker
from wcl.config import FinetuneConfig
from wcl.config.validation import MAX_LR
from wcl.data import Source, subset
from wcl.data.loader import Loader
from wcl.data.views import ViewSpec
from wcl.evaluation.crops import crop_and_flip
from wcl.evaluation.features import BATCH, none_can_be_read, pixel_batches
from wcl.evaluation.linear import untrained_layer
from wcl.evaluation.result import Result
from wcl.evaluation.splits import is_draw, keep_manifest, labeled_rows
from wcl.models.encoder import Encoder
from wcl.ops.randomness import Integers, seed_of
from wcl.system.errors import InputError, RunError
from wcl.system.progress import console, track
from wcl.system.run_folder import RunFolder
from wcl.training.optimizers import lr_at

_FIRST_LAYER = 3  # modules of a head: linear, norm, ReLU
# With one label for each of 20 classes of photos, a small ResNet from scratch had 12% right after
# 30 steps, 21% after 100 and no more after 200; a pretrained one 16, 17 and 18%.
_FEWEST_STEPS = 100
# Of the loss. Ten times the usual rates end below 100, a hundred times above 2,000; who knows
# nothing has log(classes).
_DIVERGED = 1000.0


def finetune(encoder: Encoder, train: Source, test: Source, config: FinetuneConfig) -> Result:
    """Fine-tune a copy of the encoder on the labeled part of the training images, and test it."""
    began = time.perf_counter()
    _check(config)
    rows = labeled_rows(train, config.labels, config.seed)
    if len(rows) < 2:
        raise InputError(f"--labels: at least 2 labeled images are needed, not {len(rows)}")
    batch = batch_for(len(rows), config.batch_size)
    epochs = config.epochs or epochs_for(len(rows), len(train), len(rows) // batch)
    loader = Loader(subset(train, rows), batch, config.seed, encoder.device, config.num_workers)
    maker = crop_and_flip(encoder)
    networks = [network_of(encoder, config.start, len(train.classes), config.seed)]
    details: dict[str, Any] = {"labels": config.labels}
    if is_draw(config.labels) and encoder.home is not None:
        details |= _manifest(RunFolder(encoder.home).finetune, train, rows, config)

    rates = config.encoder_rate, config.lr
    skipped = fit(networks[0], rates, loader, maker, epochs, "fine-tuning")
    if config.scratch:
        with _seeded(config.seed, "scratch"):
            fresh = Encoder(encoder.description).to(encoder.device)
        networks.append(network_of(fresh, config.start, len(train.classes), config.seed))
        rates = config.scratch_rate, config.scratch_rate
        fit(networks[1], rates, loader, maker, epochs, "training from scratch")

    right = _right(networks, encoder, test, config.num_workers)
    top1 = [_share(found[:, :1]) for found in right]
    details |= {
        "start": config.start,
        "epochs": epochs,
        "batch_size": batch,
        "top5": _share(right[0]),
    }
    if config.scratch:
        details["scratch_top1"] = top1[1]
    return Result(
        "finetune",
        top1[0],
        len(rows) - len(skipped),
        len(right[0]),
        time.perf_counter() - began,
        details,
    )


def epochs_for(labeled: int, images: int, steps: int) -> int:
    """60 passes where about 1% of the images or less have labels, else 30; more if they are short.

    `steps` is how many there are in a pass. Of ImageNet 1% are 3,000 steps, of a small folder 30.

    >>> epochs_for(12_811, 1_281_167, 50), epochs_for(128_116, 1_281_167, 500)
    (60, 30)
    >>> epochs_for(20, 1_295, 1)
    100
    """
    usual = 60 if round(100 * labeled / images) <= 1 else 30
    return max(usual, -(-_FEWEST_STEPS // steps))


def batch_for(labeled: int, most: int) -> int:
    """Images per step, at most `most`, such that hardly any are left over at an epoch's end.

    >>> batch_for(10, most=256), batch_for(300, most=256), batch_for(3, most=2)
    (10, 150, 2)
    """
    steps = -(-labeled // most)
    return max(2, labeled // steps)  # norms need two images


def network_of(encoder: Encoder, start: str, classes: int, seed: int) -> nn.Sequential:
    """A copy of the encoder up to where the classifier starts, and a new classifier.

    Args:
        encoder: stays as it is.
        start: "pool" for the backbone alone, "projection" for the first layer of g behind it.
        classes: how many classes there are.
        seed: of the classifier's weights.

    Returns:
        A network of two parts, `encoder` and `classifier`.

    Raises:
        InputError: the encoder has no head g to start from.
    """
    layers, width = [encoder.backbone], encoder.feature_dim
    if start == "projection":
        if encoder.g is None:
            raise InputError(
                "--from: the run has no head g, so there is no projection to start from; use pool"
            )
        layers += list(encoder.g)[:_FIRST_LAYER]
        width = encoder.description.model.head_hidden_dim
    parts = OrderedDict(
        encoder=copy.deepcopy(nn.Sequential(*layers)),
        classifier=untrained_layer((width, classes), seed).to(encoder.device),
    )
    return nn.Sequential(parts)


def fit(
    network: nn.Sequential,
    rates: tuple[float, float],
    loader: Loader,
    maker: ViewMaker,
    epochs: int,
    doing: str,
) -> set[int]:
    """Train all of a network of two parts, in place.

    Args:
        network: as `network_of` makes it.
        rates: peak learning rates of the encoder and of the classifier at batch 256.
        loader: of the labeled images.
        maker: of their views.
        epochs: passes over them.
        doing: what to call it.

    Returns:
        The images that could not be read.

    Raises:
        InputError: hardly any could be read.
        RunError: the network diverged.
    """
    assert loader.source.labels is not None
    labels = loader.source.labels.to(loader.device)
    total = epochs * loader.steps_per_epoch
    optimizer = torch.optim.SGD(
        [
            {"params": part.parameters(), "peak": rate * loader.batch_size / 256}
            for part, rate in zip(network, rates, strict=True)
        ],
        lr=0.0,  # set in every step
        momentum=0.9,
    )
    skipped: set[int] = set()
    last = None
    network.train()
    views = [ViewSpec(maker, 1)]
    batches = (batch for epoch in range(epochs) for batch in loader.epoch(epoch, views))
    with _seeded(loader.seed, "dropout"):
        for step, batch in enumerate(track(batches, doing, total)):
            skipped.update(batch.skipped)
            if len(batch.index) < 2:
                continue  # the others could not be read, and norms need two
            for group in optimizer.param_groups:
                group["lr"] = lr_at(step, group["peak"], 0, total)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(batch.views[0]), labels[batch.rows]).backward()
            optimizer.step()
            last = batch
    if last is None:
        raise InputError(f"{loader.source.name}: fewer than 2 labeled images can be read")
    with torch.no_grad():  # the last step may be the one
        loss = F.cross_entropy(network.eval()(last.views[0]), labels[last.rows])
    if not loss < _DIVERGED:  # nor if it is not a number
        encoder_rate, rate = rates
        raise RunError(
            f"{doing} at rates of {encoder_rate:g} and {rate:g}: the classifier diverged; "
            "use smaller ones"
        )
    return skipped


@torch.no_grad()
def _right(
    networks: Sequence[nn.Module], encoder: Encoder, test: Source, num_workers: int
) -> list[Tensor]:
    """For each network, (n, 5): whether its first, second, … guess is right of each test image."""
    assert test.labels is not None
    found: list[list[Tensor]] = [[] for _ in networks]
    batches = pixel_batches(encoder, test, num_workers)
    for pixels, index in track(batches, "testing", -(-len(test) // BATCH)):
        images, labels = encoder.normalize(pixels), test.labels[index]
        for parts, network in zip(found, networks, strict=True):
            outputs = network.eval()(images).cpu()
            guesses = outputs.topk(min(5, outputs.shape[1]), dim=1).indices
            parts.append(guesses == labels[:, None])
    if not found[0]:
        raise InputError(f"{test.name}: {none_can_be_read(len(test))}")
    return [torch.cat(parts) for parts in found]


def _share(right: Tensor) -> float:
    """Of the rows, those where any is right."""
    return float(right.any(dim=1).float().mean())


def _check(config: FinetuneConfig) -> None:
    if config.batch_size < 2:
        raise InputError(f"--batch_size: must be at least 2, not {config.batch_size}")
    if config.epochs < 0:
        raise InputError(f"--epochs: must be at least 1, or 0 to choose, not {config.epochs}")
    for name in ("encoder_rate", "lr", "scratch_rate"):
        if not 0 < (rate := getattr(config, name)) <= (most := MAX_LR / config.batch_size):
            raise InputError(f"--{name}: must be above 0 and at most {most:g}, not {rate}")
    if config.start not in ("pool", "projection"):
        raise InputError(f"--from: {config.start} is not one of pool, projection")


def _manifest(
    folder: Path, train: Source, rows: Integers, config: FinetuneConfig
) -> dict[str, str]:
    """Write down which images have labels if that is possible; fine-tuning does not fail for it."""
    try:
        path = keep_manifest(folder, train, rows, config.labels, config.seed)
    except OSError as error:
        said = f"the list of labeled images is not kept ({error})"
        console().print(said, markup=False, soft_wrap=True)
        return {}
    return {"manifest": str(path)}


@contextmanager
def _seeded(seed: int, purpose: str) -> Iterator[None]:
    """Torch's own random numbers from a seed, for a while."""
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(seed, purpose))
        yield
