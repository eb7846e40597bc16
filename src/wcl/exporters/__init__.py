"""Export an encoder to files that other programs read, and open them: one module per format."""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wcl.exporters import onnx_model, timm_files, torchscript
from wcl.exporters.card import public_name
from wcl.exporters.format import Format
from wcl.models.encoder import Encoder
from wcl.models.opening import open_encoder
from wcl.system.errors import InputError, did_you_mean
from wcl.system.files import errors_naming, must_be_new
from wcl.system.paths import expanded
from wcl.system.progress import console
from wcl.system.run_folder import RunFolder

__all__ = ["export", "load"]

FORMATS = {
    "timm": timm_files.WEIGHTS,
    "safetensors": Format("encoder.safetensors", Encoder.save, lambda description, path: []),
    "torchscript": torchscript.FORMAT,
    "onnx": onnx_model.FORMAT,
    "hub-folder": timm_files.HUB_FOLDER,
}


def export(run: str | Path, to: str, out: str | Path = "") -> Path:
    """Write a run's encoder in another format, like `wcl export RUN --to FORMAT`.

    Args:
        run: a run's folder, a file that holds an encoder's weights, or `timm:NAME[:SIZE][@FILE]`.
        to: "timm", "safetensors", "torchscript", "onnx" or "hub-folder".
        out: the file or folder to write; by default a new one in RUN/export, which for a model of
            timm is in the cache folder.

    Returns:
        The path of the file or folder.

    Raises:
        InputError: no such format or encoder, the path exists, or a package is missing.
        RunError: the exported file does not compute the same features.
        OSError: the file cannot be written.
    """
    if to not in FORMATS:
        names = ", ".join(FORMATS)
        raise InputError(f"--to: no format {to}{did_you_mean(to, FORMATS)}; choose from {names}")
    form = FORMATS[to]
    encoder = open_encoder(run)
    home = encoder.home or expanded(run).parent
    path = _output_path(out, RunFolder(home).export, form)
    encoder.description = dataclasses.replace(
        encoder.description, data=public_name(encoder.description.data)
    )
    # Nothing unfinished ever appears under the final name.
    parent = path.parent if out else home
    with TemporaryDirectory(prefix=".export-", dir=parent, ignore_cleanup_errors=True) as scratch:
        unfinished = Path(scratch, form.name)
        with errors_naming(path, Path(scratch)):
            with console().status(f"exporting {encoder.description.model.backbone} to {to}"):
                form.write(encoder, unfinished)
            path.parent.mkdir(exist_ok=True)
            unfinished.rename(path)
    print(f"wrote {path}: {_megabytes(path):.1f} MB")
    print(f"import wcl\nwcl.load({str(path)!r}).embed(['photo.jpg'])")
    for line in form.usage(encoder.description, path):
        print(line)
    return path


def _output_path(out: str | Path, folder: Path, form: Format) -> Path:
    """Return the path that the user asked for, or the format's default name in a folder."""
    path = expanded(out) if out else folder / form.name
    suffix = Path(form.name).suffix  # none for a folder
    if (suffix and path.suffix != suffix) or (out and not path.parent.is_dir()):
        kind = f"a {suffix} file" if suffix else "a new folder"
        raise InputError(f"--out: {path} must be {kind} in a folder that exists")
    must_be_new(path)
    return path


def load(path: str | Path, device: str = "cpu") -> Encoder | Any:
    """Open an encoder: a run's folder, its `encoder.safetensors`, or anything `wcl export` wrote.

    `timm:NAME` is a pretrained model of timm, `timm:NAME@FILE` one whose weights are in a file, and
    `timm:NAME:96` takes images of 96×96 pixels.

    Nothing is unpickled. A TorchScript file is nevertheless a program, which can read and write
    files: do not open one from a source that you do not trust.

    Returns:
        An `Encoder`; for a TorchScript or ONNX file an `ExportedEncoder`, which also has `embed`,
        `description` and `feature_dim`, but no weights. (The type is Any so that callers, who know
        which file they gave, need no check.)

    Raises:
        InputError: there is no encoder, or the file is not one.
    """
    file = expanded(path)  # no file, for a model of timm
    for form in FORMATS.values():
        if form.read and file.suffix == Path(form.name).suffix and file.is_file():
            return form.read(file, device)
    return open_encoder(path, device)


def _megabytes(path: Path) -> float:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e6
