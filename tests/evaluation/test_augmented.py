"""Features of augmented views: the run's own views, the same for all networks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from runs import tiny_run
from wcl.data import limited, open_split
from wcl.data.loader import views_of
from wcl.evaluation.augmented import PIXELS, run_settings, view_features
from wcl.evaluation.references import untrained_encoder
from wcl.models.encoder import load
from wcl.training.setup import build_method, open_images
from wcl.training.views import view_specs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "digits", seed=3)


def test_views_are_those_of_the_runs_augmentation(run: Path) -> None:
    encoder = load(run)
    config = run_settings(encoder)
    source = limited(open_split("digits", "all")[-1], 150, 0)  # more than a batch
    found = view_features({"encoder": encoder}, source, config, seed=5)
    assert found["encoder"].shape == (2, 150, encoder.feature_dim)
    assert found[PIXELS].shape == (2, 150, 256)
    rows = np.array([0, 77, 149])
    batch = views_of(source, rows, view_specs(config, 1, count=2), seed=5)
    with torch.no_grad():
        expected = torch.stack([encoder.backbone(view) for view in batch.views[0]])
    torch.testing.assert_close(found["encoder"][:, rows], expected)


def test_the_untrained_network_has_the_runs_initial_weights(run: Path) -> None:
    config = run_settings(load(run))
    initial = build_method(config, open_images(config), steps_per_epoch=1).encoder.state_dict()
    untrained = untrained_encoder(load(run), config.seed).state_dict()
    assert initial.keys() == untrained.keys()
    assert all(torch.equal(initial[name], untrained[name]) for name in initial)
