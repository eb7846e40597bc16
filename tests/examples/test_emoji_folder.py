"""Emoji as labeled images: classes, splits, no repetition, and a white background."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emoji_folder import main
from wcl.data import open_splits


def test_every_third_emoji_is_a_test_image_on_white(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "package" / "img" / "google" / "64"
    images.mkdir(parents=True)
    described = []
    for number in range(7):
        category = "Component" if number == 6 else ("Flags", "Food & Drink")[number % 2]
        described.append({"category": category, "image": f"{number}.png", "sort_order": number})
        drawn = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
        drawn.putpixel((0, 0), (0, 0, max(number, 1), 255))  # the first two are alike
        drawn.save(images / f"{number}.png")
    (tmp_path / "package" / "emoji.json").write_text(json.dumps(described[::-1]))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "package"), str(tmp_path / "data")])
    main()
    train, test = open_splits(str(tmp_path / "data"))
    written = sorted(path.name for path in (tmp_path / "data" / "test").rglob("*.png"))
    assert written == ["3.png"]
    assert (len(train), len(test)) == (4, 1)
    with Image.open(next((tmp_path / "data" / "train").rglob("0.png"))) as image:
        assert image.mode == "RGB" and np.asarray(image)[1:].min() == 255
