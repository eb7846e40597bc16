"""Opening of the encoder that RUN names: the only place that tells its forms apart."""

import dataclasses
import re
from contextlib import suppress
from pathlib import Path

from wcl.config import ModelConfig
from wcl.models.description import Description
from wcl.models.encoder import Encoder, check_image_size, load, weights_sha256
from wcl.models.pretrained import input_format, is_encoder, load_weights, origin
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
        problem = re.sub(r"^--\S+: ", "", str(error)).removeprefix(f"{model.name}: ")
        raise InputError(f"timm:{model.name}: {problem}") from error


def run_argument(model: ModelConfig, image_size: int) -> str:
    """Return the argument of `open_encoder` that opens the weights of a network as they are.

    >>> run_argument(ModelConfig("resnet18", weights="timm"), 96)
    'timm:resnet18:96'
    """
    if model.weights == "timm":
        return f"timm:{model.backbone}:{image_size}"
    if is_encoder(model.weights):
        return model.weights
    return f"timm:{model.backbone}:{image_size}@{model.weights}"


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
