"""Training and testing of whole networks: an encoder, and a classifier on top of it.

SGD with momentum 0.9, separate learning rates for the encoder and the classifier, cosine decay, no
weight decay, random crops and flips.
"""

import copy
from collections.abc import Callable, Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wcl.augment import ViewMaker
from wcl.data import Source
from wcl.data.loader import Loader
from wcl.data.plain_images import BATCH
from wcl.data.views import ViewSpec
from wcl.evaluation.features import none_can_be_read, pixel_batches
from wcl.evaluation.linear import untrained_layer
from wcl.models.encoder import Encoder
from wcl.ops.randomness import seed_of
from wcl.system.errors import InputError, RunError
from wcl.system.progress import track
from wcl.training.optimizers import SGD, lr_at

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From views (n, C, H, W), the network's outputs (n, classes) and the rows (n,) of their images in
the source to the loss to minimize."""

_FIRST_LAYER = 3  # modules of a head: linear, norm, ReLU
# Loss of a diverged network. With ten times the default learning rates the loss stays below 100,
# with a hundred times it exceeds 2,000; guessing gives log(classes).
_DIVERGED = 1000.0


def batch_size_for(images: int, limit: int) -> int:
    """Return a batch size of at most `limit` that leaves few images over at the end of an epoch.

    >>> batch_size_for(10, limit=256), batch_size_for(300, limit=256), batch_size_for(3, limit=2)
    (10, 150, 2)
    """
    steps = -(-images // limit)
    return max(2, images // steps)  # batch norm needs two images


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


def fresh_encoder(encoder: Encoder, seed: int) -> Encoder:
    """Return an encoder of the same architecture with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(seed, "scratch"))
        return Encoder(encoder.description).to(encoder.device)


def true_labels(source: Source, device: torch.device) -> Objective:
    """Return the cross-entropy with the labels of the source."""
    assert source.labels is not None
    labels = source.labels.to(device)

    def objective(images: Tensor, outputs: Tensor, rows: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels[rows])

    return objective


def fit(
    network: nn.Sequential,
    objective: Objective,
    lrs: tuple[float, float],
    loader: Loader,
    maker: ViewMaker,
    epochs: int,
    description: str,
) -> set[int]:
    """Train all parameters of a network of two parts, in place.

    Args:
        network: as `build_network` returns it.
        objective: the loss of a batch.
        lrs: peak learning rates of the encoder and of the classifier at batch size 256.
        loader: loads the images.
        maker: makes their views.
        epochs: number of epochs.
        description: for progress and messages.

    Returns:
        The images that cannot be read.

    Raises:
        InputError: fewer than two images can be read.
        RunError: the network diverged.
    """
    total = epochs * loader.steps_per_epoch
    optimizer = SGD(
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
            images = batch.views[0][0]
            objective(images, network(images), batch.rows).backward()
            optimizer.step()
            last = batch
    if last is None:
        raise InputError(f"{loader.source.name}: fewer than 2 images for {description} can be read")
    with torch.no_grad():  # also detects a divergence in the last step
        images = last.views[0][0]
        loss = objective(images, network.eval()(images), last.rows)
    if not loss < _DIVERGED:  # true for NaN, too
        raise RunError(
            f"{description} with learning rates of {lrs[0]:g} and {lrs[1]:g}: the classifier "
            "diverged; use smaller ones"
        )
    return unreadable


@torch.no_grad()
def correct_predictions(
    networks: Collection[nn.Module], encoder: Encoder, test: Source, num_workers: int
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
