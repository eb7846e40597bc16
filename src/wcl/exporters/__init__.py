"""An encoder in files that other programs read, and back again: one file per format."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from wcl.exporters import hub, onnx_model, torchscript
from wcl.exporters.card import public_name
from wcl.exporters.scratch import scratch_folder
from wcl.models import encoder as encoders
from wcl.models.backbones import known_to_timm, timm_options
from wcl.models.encoder import Description, Encoder
from wcl.system.errors import InputError, did_you_mean
from wcl.system.files import errors_naming, must_be_new
from wcl.system.paths import expanded
from wcl.system.progress import console
from wcl.system.run_folder import RunFolder

__all__ = ["export", "load"]


class Format(NamedTuple):
    """How an encoder is written in one format."""

    name: str
    """Of the file or folder in RUN/export, where no other is asked for."""
    write: Callable[[Encoder, Path], None]


FORMATS = {
    "timm": Format("backbone.safetensors", Encoder.save_backbone),
    "safetensors": Format("encoder.safetensors", Encoder.save),
    "torchscript": Format("encoder.pt", torchscript.write),
    "onnx": Format("encoder.onnx", onnx_model.write),
    "hub-folder": Format("hub", hub.write),
}


def export(run: str | Path, to: str, out: str | Path = "") -> Path:
    """Write a run's encoder in another format: the same as `wcl export RUN --to FORMAT`.

    Args:
        run: a run's folder, or a file that holds an encoder's weights.
        to: "timm", "safetensors", "torchscript", "onnx" or "hub-folder".
        out: the file or folder to write; a place in RUN/export if none is given.

    Returns:
        What was written.

    Raises:
        InputError: no such format, no encoder, something is there already, or a package is missing.
        RunError: what was written does not compute the same features.
        OSError: it cannot be written.
    """
    if to not in FORMATS:
        names = ", ".join(FORMATS)
        raise InputError(f"--to: no format {to}{did_you_mean(to, FORMATS)}; there are {names}")
    form = FORMATS[to]
    encoder = encoders.load(run)
    home = encoder.home or expanded(run).parent
    path = _place(out, RunFolder(home).export, form)
    encoder.description = dataclasses.replace(
        encoder.description, data=public_name(encoder.description.data)
    )
    with scratch_folder(path.parent if out else home) as scratch, errors_naming(path, scratch):
        unfinished = scratch / form.name
        with console().status(f"exporting {encoder.description.model.backbone} to {to}"):
            form.write(encoder, unfinished)
        path.parent.mkdir(exist_ok=True)
        unfinished.rename(path)
    print(f"wrote {path}: {_megabytes(path):.1f} MB")
    for line in how_to_load(encoder.description, to, path):
        print(f"  {line}")
    return path


def _place(out: str | Path, usual: Path, form: Format) -> Path:
    """Where to write: what the user asked for, or the format's own name in the usual folder."""
    path = expanded(out) if out else usual / form.name
    suffix = Path(form.name).suffix  # none for a folder
    if (suffix and path.suffix != suffix) or (out and not path.parent.is_dir()):
        kind = f"a {suffix} file" if suffix else "a new folder"
        raise InputError(f"--out: {path} must be {kind} in a folder that exists")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"{path.parent}: a file where a folder is needed; move it, or give --out")
    must_be_new(path)
    return path


def load(path: str | Path, device: str = "cpu") -> Encoder | Any:
    """Open an encoder: a run's folder, its `encoder.safetensors`, or whatever `wcl export` wrote.

    Nothing is unpickled. A TorchScript file, however, is a program, which can read and write files:
    open none from strangers.

    Returns:
        An `Encoder`; of a TorchScript or ONNX file an `ExportedEncoder`, which has `embed`,
        `description` and `features` as well, and no weights. (Callers know which they gave: the
        type lets them use it without asking.)

    Raises:
        InputError: there is no encoder there, or the file is not one.
    """
    file = expanded(path)
    if file.is_file() and file.suffix == ".pt":
        return torchscript.read(file, device)
    if file.is_file() and file.suffix == ".onnx":
        return onnx_model.read(file, device)
    return encoders.load(path, device)


def how_to_load(description: Description, to: str, path: Path) -> list[str]:
    """The ways to open an export, ours first."""
    model = description.model
    ways = [f'wcl.load("{path}").embed(images)']
    by_timm = f'timm.create_model("local-dir:{path}", pretrained=True)'
    if to == "timm":
        options = timm_options(model.backbone, description.channels, description.image_size)
        words = "".join(f", {name}={value}" for name, value in options.items())
        by_timm = f'timm.create_model("{model.backbone}"{words}, checkpoint_path="{path}")'
    if to in ("timm", "hub-folder"):
        stem = "" if model.stem == "native" else f" with the stem {model.stem}"
        unknown = f"timm has no {model.backbone}{stem}: only wcl.load opens it"
        ways.append(by_timm if known_to_timm(model) else unknown)
    if to == "torchscript":
        ways.append(f'torch.jit.load("{path}")(images)')
    if to == "onnx":
        ways.append(f'onnxruntime.InferenceSession("{path}").run(None, {{"images": images}})')
    if to in ("torchscript", "onnx"):
        shape = f"(N, {description.channels}, {description.image_size}, {description.image_size})"
        ways.append(f"images: float32 {shape} between 0 and 1; the file normalizes them itself")
    return ways


def _megabytes(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e6
