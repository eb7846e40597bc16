"""Weak labels that need the state of a method: prototypes and clusters of the checkpoint."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from report_pages import report_of, tiny_photo_run
from runs import checkpoint
from wcl.data import open_source
from wcl.models.encoder import load
from wcl.report.images import choose, encode
from wcl.report.runs import read_run


@pytest.mark.parametrize(
    ("name", "loss", "key"),
    [
        ("pcl", {"clusters": 5, "warmup_epochs": 0}, "prototypes.0.centers"),
        ("swav", {"prototypes": 5}, "prototypes"),
    ],
)
def test_they_are_those_of_the_trained_prototypes(
    name: str, loss: dict[str, Any], key: str, photos: Path, tmp_path: Path
) -> None:
    run = tiny_photo_run(photos, tmp_path / "run", method=name, loss=loss)
    encoder, images = load(run), choose(open_source(str(photos)), 100, 0)
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    encoded = encode(read_run(str(run)), encoder, images, 0)
    prototypes = checkpoint(run)["method"][key]
    with torch.no_grad():
        scores = F.normalize(encoder.heads["g"](encoded.features), dim=1) @ prototypes.T
    nearest, labels = scores.argmax(dim=1), encoded.weak_labels
    assert labels is not None
    assert torch.equal(labels[:, None] == labels, nearest[:, None] == nearest)
    assert all(torch.equal(before[k], v) for k, v in encoder.state_dict().items())
    assert "has no weak labels" not in report_of(run).text

    shutil.rmtree(run / "checkpoints")
    assert encode(read_run(str(run)), encoder, images, 0).weak_labels is None
    assert "has no weak labels" in report_of(run).text
