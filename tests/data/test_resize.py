"""Crops that torch resizes, against PIL's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from images import photo_folder, picture, save_jpeg
from wcl.augment import ViewMaker
from wcl.config import AugmentConfig
from wcl.data import open_source, resize
from wcl.data.photo_views import PhotoViews, Task
from wcl.data.planes import Picture, Planes
from wcl.data.resize import resized

_SIDES = st.integers(1, 300)


@pytest.fixture(autouse=True, scope="module")
def _torch_resizes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(resize, "RESIZER", "torch")
        yield


def noise(seed: int, height: int, width: int) -> Image.Image:
    generator = np.random.default_rng(seed)
    return Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))


def by_pil(image: Image.Image, size: int) -> torch.Tensor:
    small = np.array(image.resize((size, size), Image.Resampling.BILINEAR))
    return torch.from_numpy(small).permute(2, 0, 1)


def whole(image: Picture, size: int) -> torch.Tensor:
    return resized(image, size, (0, 0, *image.size))


@given(st.integers(0, 99), _SIDES, _SIDES, st.integers(1, 224))
def test_noise_of_any_shape_is_pils_within_two(
    seed: int, height: int, width: int, size: int
) -> None:
    image = noise(seed, height, width)
    found, expected = whole(image, size), by_pil(image, size)
    assert found.dtype == torch.uint8 and found.shape == expected.shape
    assert (found.int() - expected.int()).abs().max() <= 2


def test_photos_are_pils_but_for_a_few_bytes_that_differ_by_one() -> None:
    for seed, size in enumerate((64, 128, 224, 300)):
        image = picture(seed, 271, 362)
        difference = (whole(image, size).int() - by_pil(image, size).int()).abs()
        assert difference.max() <= 1
        assert difference.float().mean() < 0.1


@given(st.integers(0, 255), _SIDES, _SIDES, st.integers(1, 224))
def test_one_color_stays_that_color(value: int, height: int, width: int, size: int) -> None:
    image = Image.new("RGB", (width, height), (value, 255 - value, 0))
    assert torch.equal(whole(image, size), by_pil(image, size))


@pytest.mark.parametrize(("height", "width", "size"), [(70, 50, 32), (20, 31, 64), (1, 9, 4)])
def test_channels_are_resized_alike_alone_and_together(height: int, width: int, size: int) -> None:
    image = noise(0, height, width)
    channels = image.split()
    expected = whole(image, size)
    assert torch.equal(torch.cat([whole(channel, size) for channel in channels]), expected)
    five = [*channels, channels[0], channels[1]]
    assert torch.equal(whole(Planes(five), size), expected[[0, 1, 2, 0, 1]])


def test_a_box_inside_an_image_is_pils() -> None:
    image, box = noise(0, 60, 80), (0.5, 0.25, 70.5, 59.75)
    expected = np.array(image.resize((32, 32), Image.Resampling.BILINEAR, box))
    assert torch.equal(resized(image, 32, box), torch.from_numpy(expected).permute(2, 0, 1))


def test_the_instructions_of_the_cpu_make_no_difference(tmp_path: Path) -> None:
    """A process that uses none beyond the least gives the same bytes as this one."""
    program = (
        "import sys, torch; from test_resize import resize, samples\n"
        "assert torch.backends.cpu.get_cpu_capability() not in ('AVX2', 'AVX512')\n"
        "assert resize.RESIZER == 'PIL'\n"
        "resize.RESIZER = 'torch'; torch.save(samples(), sys.argv[1])"
    )
    paths = [str(Path(__file__).parent), *sys.path]
    environment = {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", program, str(tmp_path / "samples.pt")]
    subprocess.run(command, env=os.environ | environment, check=True)
    for found, expected in zip(torch.load(tmp_path / "samples.pt"), samples(), strict=True):
        assert torch.equal(found, expected)


def samples() -> list[torch.Tensor]:
    shapes = [(271, 362, 224), (40, 50, 96), (300, 7, 64), (600, 800, 33), (5, 5, 5)]
    return [whole(noise(0, height, width), size) for height, width, size in shapes]


def test_views_of_photos_are_those_that_pil_resizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of photos that are turned, or so large that they are decoded at a reduced scale."""
    root = photo_folder(tmp_path / "data", each=4)
    save_jpeg(root / "dog" / "large.jpg", picture(7, 900, 1200), 6)
    picture(8, 90, 120).convert("L").save(root / "dog" / "gray.jpg")
    source = open_source(str(root))
    index = np.arange(len(source))
    own = np.repeat(index[:, None], 2, axis=1)
    makers = [ViewMaker(AugmentConfig(), 48), ViewMaker(AugmentConfig(scale=(0.05, 0.14)), 24)]
    views = PhotoViews(source, 0, 0)
    task = Task(0, makers, index, [own, own])
    found = views[task]
    monkeypatch.setattr(resize, "RESIZER", "PIL")
    expected = torch.cat([of_spec.flatten() for of_spec in views[task].crops])
    pixels = torch.cat([of_spec.flatten() for of_spec in found.crops])
    assert 0 < (pixels.int() - expected.int()).abs().max() <= 2
