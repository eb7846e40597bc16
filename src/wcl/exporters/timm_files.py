"""What timm opens: the backbone's weights, and a folder for the Hugging Face hub."""

import json
from pathlib import Path
from typing import Any

from wcl.exporters.card import model_card
from wcl.exporters.format import Format
from wcl.models.backbones import is_timm_model, timm_options
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.models.image_sizes import size_options


def write_folder(encoder: Encoder, folder: Path) -> None:
    """Write weights, config.json and a model card.

    The whole encoder is written too if timm cannot build the network.
    """
    folder.mkdir()
    encoder.save_backbone(folder / "model.safetensors")
    if not is_timm_model(encoder.description.model):
        encoder.save(folder / "encoder.safetensors")
    text = json.dumps(config(encoder), indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
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
    options: dict[str, Any] = {}
    if is_timm_model(model):
        options = size_options(model.backbone, size)
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
        "model_args": options,
    }


def usage_of_weights(description: Description, path: Path) -> list[str]:
    """Show how timm opens the weights."""
    backbone = description.model.backbone
    options = timm_options(backbone, description.channels, description.image_size)
    arguments = "".join(f", {name}={value}" for name, value in options.items())
    call = f"timm.create_model({backbone!r}{arguments}, checkpoint_path={str(path)!r})"
    return _unless_unknown(description, call)


def usage_of_folder(description: Description, path: Path) -> list[str]:
    """Show how timm opens the folder."""
    call = f"timm.create_model({f'local-dir:{path}'!r}, pretrained=True)"
    return _unless_unknown(description, call)


def _unless_unknown(description: Description, call: str) -> list[str]:
    """Return the lines that open an encoder with timm, or a comment why timm cannot."""
    model = description.model
    if is_timm_model(model):
        return ["import timm", call]
    stem = "" if model.stem == "native" else f" with the stem {model.stem}"
    return [f"# timm has no {model.backbone}{stem}: only wcl.load opens it"]


WEIGHTS = Format("backbone.safetensors", Encoder.save_backbone, usage_of_weights)
HUB_FOLDER = Format("hub", write_folder, usage_of_folder)
