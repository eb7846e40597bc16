"""A run scales deep images by a range that its settings and its encoder record."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from tifffile import imwrite

import wcl
from runs import metrics, photo_run
from wcl.apps.embed import embed
from wcl.config import EmbedConfig, PretrainConfig
from wcl.data import measured_levels, open_source
from wcl.data.decode import center_crop, open_image
from wcl.system.errors import InputError
from wcl.system.run_folder import RunFolder
from wcl.training.levels import with_measured_levels, with_recorded_levels


def stains(root: Path, count: int = 16, channels: int = 5) -> Path:
    """Channels of 12 bits, each with another brightness."""
    root.mkdir()
    brightness = np.linspace(0.1, 1, channels)[:, None, None]
    for number in range(count):
        values = np.random.default_rng(number).integers(0, 4096, (channels, 40, 44)) * brightness
        imwrite(
            root / f"{number:02}.tif",
            values.astype(np.uint16),
            photometric="minisblack",
            planarconfig="separate",
        )
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stains")
    return photo_run(stains(root / "data"), root / "run", epochs=2, num_workers=0)


def test_settings_and_encoder_have_the_measured_range(run: Path) -> None:
    levels = measured_levels(open_source(str(run.parent / "data")), 0)
    assert len(levels) == 5
    recorded = yaml.safe_load(RunFolder(run).config.read_text())
    assert recorded["levels"] == [list(pair) for pair in levels]
    encoder = wcl.load(run)
    assert encoder.description.levels == levels
    assert encoder.description.mean == (0.5,) * 5
    assert metrics(run)[-1]["skipped"] == 0


def test_files_are_embedded_with_the_range_of_the_run(run: Path, tmp_path: Path) -> None:
    encoder = wcl.load(run)
    described = encoder.description
    files = sorted((run.parent / "data").iterdir())
    crops = [center_crop(open_image(file), 32, 5, described.levels) for file in files]
    expected = encoder.embed(torch.stack(crops))
    assert torch.equal(encoder.embed(files), expected)
    out = embed(run, EmbedConfig(data=str(run.parent / "data"), out=str(tmp_path / "v.npy")))
    assert torch.equal(torch.from_numpy(np.load(out)), expected)
    wcl.export(run, "torchscript", tmp_path / "encoder.pt")
    assert torch.allclose(wcl.load(tmp_path / "encoder.pt").embed(files), expected, atol=1e-5)


def test_a_resumed_run_uses_the_recorded_range(run: Path) -> None:
    recorded = yaml.safe_load(RunFolder(run).config.read_text())
    restarted = with_recorded_levels(PretrainConfig(), recorded)  # the command that began it
    assert restarted.levels == wcl.load(run).description.levels
    assert with_recorded_levels(PretrainConfig(), {}).levels == ()  # of an older version
    assert wcl.pretrain(resume=True, out=str(run)) == run


def test_a_given_range_is_used_and_checked(tmp_path: Path) -> None:
    source = open_source(str(stains(tmp_path / "data", 2)))
    given = PretrainConfig(levels=((0.0, 4095.0),))
    assert with_measured_levels(given, source) is given
    for levels in (((5.0, 5.0),), ((9.0, 1.0),), ((0.0, 1.0),) * 2, ((float("nan"), 1.0),)):
        with pytest.raises(InputError, match="--levels"):
            with_measured_levels(PretrainConfig(levels=levels), source)


def test_the_range_of_gray_images_of_16_bits_is_logged_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    Image.fromarray(values).save(tmp_path / "a.png")
    config = with_measured_levels(PretrainConfig(data="x"), open_source(str(tmp_path)))
    assert config.levels == ((4.0, 4091.0),)
    (line,) = capfd.readouterr().err.splitlines()
    assert "4 and 4,091" in line
