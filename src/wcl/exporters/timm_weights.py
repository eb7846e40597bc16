"""The backbone's weights alone, under timm's names."""

from pathlib import Path

from wcl.exporters.format import Format
from wcl.models.backbones import known_to_timm, timm_options
from wcl.models.description import Description
from wcl.models.encoder import Encoder


def usage(description: Description, path: Path) -> list[str]:
    """Show how timm opens the file."""
    backbone = description.model.backbone
    options = timm_options(backbone, description.channels, description.image_size)
    arguments = "".join(f", {name}={value}" for name, value in options.items())
    call = f'timm.create_model("{backbone}"{arguments}, checkpoint_path="{path}")'
    return [call_of_timm(description, call)]


def call_of_timm(description: Description, call: str) -> str:
    """Return the call that opens an encoder with timm, or why timm cannot."""
    model = description.model
    if known_to_timm(model):
        return call
    stem = "" if model.stem == "native" else f" with the stem {model.stem}"
    return f"timm has no {model.backbone}{stem}: only wcl.load opens it"


FORMAT = Format("backbone.safetensors", Encoder.save_backbone, usage)
