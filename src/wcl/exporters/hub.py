"""A folder as the Hugging Face hub and timm know it: weights, config.json and a model card."""

import json
from pathlib import Path
from typing import Any

from wcl.exporters.card import model_card
from wcl.models.backbones import known_to_timm, timm_options
from wcl.models.encoder import Encoder


def write(encoder: Encoder, folder: Path) -> None:
    """Write the folder; of a network that timm cannot build, the whole encoder lies there too."""
    folder.mkdir()
    encoder.save_backbone(folder / "model.safetensors")
    if not known_to_timm(encoder.description.model):
        encoder.save(folder / "encoder.safetensors")
    (folder / "config.json").write_text(json.dumps(config(encoder), indent=2) + "\n")
    (folder / "README.md").write_text(model_card(encoder), encoding="utf-8")


def config(encoder: Encoder) -> dict[str, Any]:
    """What timm reads: which network to build, and how to feed it."""
    described = encoder.description
    model = described.model
    architecture = model.backbone.partition(".")[0]  # without timm's tag of other weights
    if model.stem != "native":
        # A name that timm does not have: some would load into its own stem, and compute nonsense.
        architecture += f"_{model.stem}_stem"
    size = described.image_size
    preprocessing: dict[str, Any] = {
        "input_size": [described.channels, size, size],
        # As `wcl.data.decode.center_crop` prepares images.
        "interpolation": "bilinear",
        "crop_mode": "center",
        "crop_pct": 0.875 if size >= 96 else 1.0,
        "mean": described.mean,
        "std": described.std,
        "num_classes": 0,
    }
    if known_to_timm(model):
        options = timm_options(model.backbone, described.channels, size)
        preprocessing["fixed_input_size"] = "img_size" in options
        # Their names let timm put a classifier on top: create_model(…, num_classes=10).
        backbone: Any = encoder.backbone
        layers = ("first_conv", "classifier")
        preprocessing |= {name: backbone.pretrained_cfg.get(name) for name in layers}
    return {
        "architecture": architecture,
        "num_classes": 0,
        "num_features": encoder.feature_dim,
        "pretrained_cfg": preprocessing,
    }
