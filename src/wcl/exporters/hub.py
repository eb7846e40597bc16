"""A folder for the Hugging Face hub and timm: weights, config.json and a model card."""

import json
from pathlib import Path
from typing import Any

from wcl.exporters.card import model_card
from wcl.exporters.format import Format
from wcl.exporters.timm_weights import call_of_timm
from wcl.models.backbones import known_to_timm, timm_options
from wcl.models.description import Description
from wcl.models.encoder import Encoder


def write(encoder: Encoder, folder: Path) -> None:
    """Write the folder, with the whole encoder too if timm cannot build the network."""
    folder.mkdir()
    encoder.save_backbone(folder / "model.safetensors")
    if not known_to_timm(encoder.description.model):
        encoder.save(folder / "encoder.safetensors")
    (folder / "config.json").write_text(
        json.dumps(config(encoder), indent=2) + "\n", encoding="utf-8"
    )
    (folder / "README.md").write_text(model_card(encoder), encoding="utf-8")


def config(encoder: Encoder) -> dict[str, Any]:
    """Return what timm reads: which network to build, and how to preprocess images."""
    described = encoder.description
    model = described.model
    architecture = model.backbone.partition(".")[0]  # without timm's tag for other weights
    if model.stem != "native":
        # A name unknown to timm: some weights would load into its own stem and compute nonsense.
        architecture += f"_{model.stem}_stem"
    size = described.image_size
    preprocessing: dict[str, Any] = {
        "input_size": [described.channels, size, size],
        # The same as `wcl.data.decode.center_crop`.
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
        # timm needs these names to add a classifier: create_model(…, num_classes=10).
        backbone: Any = encoder.backbone
        layers = ("first_conv", "classifier")
        preprocessing |= {name: backbone.pretrained_cfg.get(name) for name in layers}
    return {
        "architecture": architecture,
        "num_classes": 0,
        "num_features": encoder.feature_dim,
        "pretrained_cfg": preprocessing,
    }


def usage(description: Description, path: Path) -> list[str]:
    """Show how timm opens the folder."""
    call = f'timm.create_model("local-dir:{path}", pretrained=True)'
    return [call_of_timm(description, call)]


FORMAT = Format("hub", write, usage)
