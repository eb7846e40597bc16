"""Opening of the encoder that RUN names: the only place that tells its forms apart."""

import dataclasses
from contextlib import suppress
from pathlib import Path

from wcl.config import ModelConfig
from wcl.models.description import Description
from wcl.models.encoder import Encoder, check_image_size, load, weights_sha256
from wcl.models.pretrained import input_format, load_weights, origin
from wcl.system.cache_folder import cache_folder
from wcl.system.errors import InputError
from wcl.system.run_argument import TimmModel, timm_model


def open_encoder(run: str | Path | Encoder, device: str = "cpu") -> Encoder:
    """Open an encoder.

    Args:
        run: a run folder, an encoder file, an export with weights, `timm:NAME[:SIZE][@FILE]`, or an
            encoder, which is returned as it is.
        device: of the encoder.

    Raises:
        InputError: there is no such encoder, or its file is damaged.
    """
    if isinstance(run, Encoder):
        return run
    model = timm_model(run)
    if model is None:
        return load(run, device)
    try:
        return _open_timm_model(model).to(device).eval()
    except InputError as error:
        problem = str(error).removeprefix("--model.backbone: ").removeprefix(f"{model.name}: ")
        raise InputError(f"timm:{model.name}: {problem}") from error


def _open_timm_model(chosen: TimmModel) -> Encoder:
    """Build a pretrained model of timm, whose files belong into a cache folder."""
    model = ModelConfig(chosen.name, weights=chosen.weights)
    given = input_format(model)
    size = chosen.image_size or given.image_size
    description = Description(
        ModelConfig(chosen.name),
        heads=(),
        channels=given.channels,
        image_size=size,
        mean=given.mean,
        std=given.std,
        weights=origin(model),
    )
    encoder = Encoder(description)
    check_image_size(encoder, size, "size")  # before position embeddings are resized to it
    sha256 = load_weights(encoder.backbone, model, given.channels, size)
    encoder.description = dataclasses.replace(
        description,
        weights_sha256=sha256,
        sha256=weights_sha256(encoder.backbone.state_dict()),
        feature_dim=encoder.feature_dim,
    )
    name = f"{chosen.name}-{size}-{encoder.description.sha256[:12]}"
    encoder.home = cache_folder() / "pretrained" / name
    with suppress(OSError):  # whoever writes there will report it
        encoder.home.mkdir(parents=True, exist_ok=True)
    return encoder
