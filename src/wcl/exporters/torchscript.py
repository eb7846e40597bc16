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
from wcl.system.errors import InputError


def write(encoder: Encoder, path: Path) -> None:
    """Trace the encoder, and compare the file with it."""
    content, public = io.BytesIO(), io.BytesIO()
    with traced.tracing(encoder, "torchscript") as (network, images):
        script = torch.jit.trace(network, images, check_trace=False)
        extra = {traced.DESCRIPTION: traced.description_of(encoder)}
        torch.jit.save(script, content, _extra_files=extra)
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
        InputError: it is not one, it is damaged, or torch cannot load it on this device.
    """
    content, extra = io.BytesIO(traced.read_sealed(file)), {traced.DESCRIPTION: ""}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            network = torch.jit.load(content, device, _extra_files=extra).eval()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{file}: this torch cannot load it ({reason})") from error

    @torch.no_grad()
    def compute(images: Tensor) -> Tensor:
        features: Tensor = network(images.to(device))
        return features.float().cpu()

    return traced.ExportedEncoder(file, extra[traced.DESCRIPTION], compute)


def usage(description: Description, path: Path) -> list[str]:
    """Show how torch runs the file."""
    return [
        "import torch",
        traced.example_images(description, "torch.zeros(SHAPE)"),
        f"torch.jit.load({str(path)!r})(images)",
    ]


FORMAT = Format("encoder.pt", write, usage, read)
