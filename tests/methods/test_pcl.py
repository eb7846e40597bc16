"""PCL: its loss, its bank, its warm-up and its weak labels."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from built_methods import DIM, build, normal, whole
from wcl.methods.method import Losses
from wcl.methods.pcl import PCL
from wcl.system.errors import InputError

IMAGES = 64


def pcl(**settings: Any) -> PCL:
    method = build("pcl", **{"warmup_epochs": 0, "clusters": 4, "clusterings": 2, **settings})
    assert isinstance(method, PCL)
    return method.double()


def step(method: PCL, seed: int) -> tuple[Losses, Tensor]:
    """One step on random embeddings of the first nine images; returns the keys, too."""
    g, keys = normal(seed, 1, 9, DIM), normal(seed + 1, 1, 9, DIM)
    losses = method.loss({"h": g, "g": g}, {"g": keys}, whole(9))
    method.after_step(0.5)
    return losses, F.normalize(keys[0], dim=1)


def test_the_loss_is_that_of_moco_and_the_mean_over_the_clusterings() -> None:
    method = pcl()
    step(method, 0)
    method.end_of_epoch(None)
    assert [len(each.centers) for each in method._clusterings] == [4, 2]
    losses, _ = step(method, 2)
    q = F.normalize(normal(2, 9, DIM), dim=1)
    terms = [each.losses(q, torch.arange(9)).mean() for each in method._clusterings]
    torch.testing.assert_close(losses.parts["proto"], (terms[0] + terms[1]) / 2)
    assert float(losses.parts["proto"]) > 0
    torch.testing.assert_close(losses.total, losses.parts["nce"] + losses.parts["proto"])


def test_the_bank_has_the_last_key_of_every_image() -> None:
    method = pcl()
    step(method, 0)
    _, keys = step(method, 2)
    torch.testing.assert_close(method.bank[:9], keys)
    assert method.seen.tolist() == [True] * 9 + [False] * (IMAGES - 9)


def test_clusters_come_after_the_warm_up() -> None:
    method = pcl(warmup_epochs=2)
    for epoch in range(4):
        losses, _ = step(method, epoch)
        assert bool(losses.parts["proto"] > 0) == (epoch >= 2)
        (labels,) = losses.weak_labels
        assert (labels.tolist() == list(range(9))) == (epoch < 2)
        method.end_of_epoch(None)


def test_weak_labels_are_the_finest_clusters() -> None:
    method = pcl()
    step(method, 0)
    method.end_of_epoch(None)
    (labels,) = step(method, 2)[0].weak_labels
    clusters = method._clusterings[0].assignments[:9]
    assert torch.equal(labels[:, None] == labels, clusters[:, None] == clusters)
    assert all(int(labels[label]) == label for label in labels.tolist())


def test_reports_see_the_nearest_prototypes_once_there_are_some() -> None:
    method = pcl()
    _, keys = step(method, 0)
    assert method.weak_labels({"g": keys}) is None
    method.end_of_epoch(None)
    found = method.weak_labels({"g": 3 * keys})
    assert found is not None
    nearest = (keys @ method._clusterings[0].centers.T).argmax(dim=1)
    assert torch.equal(found[:, None] == found, nearest[:, None] == nearest)


def test_the_default_number_of_clusters_fits_the_data() -> None:
    method = build("pcl")
    assert isinstance(method, PCL)
    assert [len(each.centers) for each in method._clusterings] == [4, 2, 1]  # of 64 images


def test_more_clusters_than_images_are_an_input_error() -> None:
    with pytest.raises(InputError, match=r"--loss\.clusters: 65 .* 64 images"):
        pcl(clusters=65)
