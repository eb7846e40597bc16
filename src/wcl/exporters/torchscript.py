"""TorchScript: a file that torch runs without wcl and timm, also from C++."""

import io
import warnings
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from wcl.exporters.format import Format
from wcl.exporters.traced import (
    CHECKSUM_PLACEHOLDER,
    DESCRIPTION,
    ExportedEncoder,
    FromPixels,
    check_features,
    description_of,
    example_images,
    input_format,
    must_be_sealed,
    seal,
)
from wcl.models.encoder import Description, Encoder
from wcl.system.errors import InputError, RunError


def write(encoder: Encoder, path: Path) -> None:
    """Trace the encoder, and compare the file with it."""
    content, public = io.BytesIO(), io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # about what tracing might miss, which is checked below
            network = FromPixels(encoder).eval()
            traced = torch.jit.trace(
                network, example_images(encoder.description), check_trace=False
            )
            torch.jit.save(traced, content, _extra_files={DESCRIPTION: description_of(encoder)})
    except RuntimeError as error:
        name, reason = encoder.description.model.backbone, str(error).splitlines()[0]
        raise RunError(f"--to torchscript: {name} cannot be traced ({reason})") from error
    # Debug entries, which only serve error messages, hold paths of this machine.
    with zipfile.ZipFile(content) as traced_file, zipfile.ZipFile(public, "w") as archive:
        archive.comment = CHECKSUM_PLACEHOLDER  # the end of a zip file, which readers skip
        for entry in traced_file.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                archive.writestr(entry, traced_file.read(entry))
    path.write_bytes(seal(public.getvalue()))
    check_features(encoder, read(path))


def read(file: Path, device: str = "cpu") -> ExportedEncoder:
    """Open a file that `write` wrote. Others are refused: a TorchScript file is a program.

    Raises:
        InputError: it is not one, or it is damaged.
    """
    content = file.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [n for n in archive.namelist() if n.endswith(f"/extra/{DESCRIPTION}")]
            if not names:
                raise InputError(f"{file}: a zip file, but not an encoder that wcl exported")
            must_be_sealed(content, file)
            description = archive.read(names[0]).decode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            network = torch.jit.load(io.BytesIO(content), map_location=device).eval()
    except zipfile.BadZipFile as error:
        raise InputError(f"{file}: not a TorchScript file, or damaged ({error})") from error
    except (RuntimeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: damaged ({str(error).splitlines()[0]})") from error

    @torch.no_grad()
    def compute(images: Tensor) -> Tensor:
        features: Tensor = network(images.to(device))
        return features.float().cpu()

    return ExportedEncoder(file, description, compute)


def usage(description: Description, path: Path) -> list[str]:
    """Show how torch runs the file."""
    return [f'torch.jit.load("{path}")(images)', input_format(description)]


FORMAT = Format("encoder.pt", write, usage, read)
