"""TorchScript: a file that torch runs without wcl and timm, also from C++."""

import io
import warnings
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from wcl.exporters import traced
from wcl.exporters.format import Format
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError, RunError


def write(encoder: Encoder, path: Path) -> None:
    """Trace the encoder, and compare the file with it."""
    content, public = io.BytesIO(), io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # about what tracing might miss, which is checked below
            network = traced.FromPixels(encoder).eval()
            script = torch.jit.trace(
                network, traced.example_images(encoder.description), check_trace=False
            )
            torch.jit.save(
                script, content, _extra_files={traced.DESCRIPTION: traced.description_of(encoder)}
            )
    except RuntimeError as error:
        name, reason = encoder.description.model.backbone, str(error).splitlines()[0]
        raise RunError(f"--to torchscript: {name} cannot be traced ({reason})") from error
    # Debug entries, which only serve error messages, hold paths of this machine.
    with zipfile.ZipFile(content) as debug_archive, zipfile.ZipFile(public, "w") as archive:
        archive.comment = traced.CHECKSUM_PLACEHOLDER  # the end of a zip file, which readers skip
        for entry in debug_archive.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                archive.writestr(entry, debug_archive.read(entry))
    path.write_bytes(traced.seal(public.getvalue()))
    traced.check_features(encoder, read(path))


def read(file: Path, device: str = "cpu") -> traced.ExportedEncoder:
    """Open a file that `write` wrote. Others are refused: a TorchScript file is a program.

    Raises:
        InputError: it is not one, or it is damaged.
    """
    content = file.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [n for n in archive.namelist() if n.endswith(f"/extra/{traced.DESCRIPTION}")]
            if not names:
                raise InputError(f"{file}: a zip file, but not an encoder that wcl exported")
            traced.must_be_sealed(content, file)
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

    return traced.ExportedEncoder(file, description, compute)


def usage(description: Description, path: Path) -> list[str]:
    """Show how torch runs the file."""
    return [f'torch.jit.load("{path}")(images)', traced.input_format(description)]


FORMAT = Format("encoder.pt", write, usage, read)
