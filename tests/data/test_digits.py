"""The digits that come with scikit-learn: read once, and nobody's to change."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from wcl.data import ArraySource, open_splits


def splits() -> tuple[ArraySource, ArraySource]:
    train, test = open_splits("digits")
    assert isinstance(train, ArraySource) and isinstance(test, ArraySource)
    return train, test


def test_every_digit_of_the_package_is_in_one_of_the_splits() -> None:
    data = load_digits()
    images = torch.from_numpy(data.images).float()[:, None] * (255 / 16)
    resized = F.interpolate(images, (32, 32), mode="bilinear", align_corners=False).round().byte()
    train, test = splits()
    assert (len(train), len(test)) == (1297, 500)
    both = torch.cat([train.pixels, test.pixels]).flatten(1)
    assert train.labels is not None and test.labels is not None
    labels = torch.cat([train.labels, test.labels])
    ours = sorted(
        [label, *pixels] for label, pixels in zip(labels.tolist(), both.tolist(), strict=True)
    )
    theirs = sorted(
        [label, *pixels]
        for label, pixels in zip(data.target.tolist(), resized.flatten(1).tolist(), strict=True)
    )
    assert ours == theirs


def test_who_changes_them_changes_only_their_own() -> None:
    train, test = splits()
    before = [train.pixels.clone(), test.pixels.clone()]
    for source in (train, test):
        source.pixels.zero_()
        assert source.labels is not None
        source.labels.fill_(3)
        source.unreadable[0] = "changed"
        source.classes = ["changed"]
    again = splits()
    for source, pixels in zip(again, before, strict=True):
        assert torch.equal(source.pixels, pixels) and pixels.any()
        assert source.labels is not None and len(source.labels.unique()) == 10
        assert not source.unreadable and [*source.classes] == [str(n) for n in range(10)]
    assert not hasattr(again[0].classes, "append")


def test_they_are_read_from_the_package_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = splits()
    monkeypatch.setattr("sklearn.datasets.load_digits", None)
    again, _ = splits()
    assert torch.equal(first.pixels, again.pixels)
