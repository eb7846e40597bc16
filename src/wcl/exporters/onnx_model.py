"""ONNX: a file that onnxruntime and many other programs run without torch."""

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcl.exporters import traced
from wcl.exporters.format import Format
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError, RunError


def write(encoder: Encoder, path: Path) -> None:
    """Write the encoder for batches of any size, and compare the file with it in onnxruntime."""
    onnx, _ = _package("onnx", "--to onnx"), _package("onnxruntime", "--to onnx")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # about what tracing might miss, which is checked below
            torch.onnx.export(
                traced.FromPixels(encoder).eval(),
                (traced.example_images(encoder.description),),
                path,
                input_names=["images"],
                output_names=["features"],
                dynamic_axes={"images": {0: "batch"}, "features": {0: "batch"}},
                dynamo=False,  # the other exporter needs one more package
            )
    except RuntimeError as error:  # an operator that ONNX does not have
        name, reason = encoder.description.model.backbone, str(error).splitlines()[0]
        raise RunError(f"--to onnx: {name} cannot be exported ({reason})") from error
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {traced.DESCRIPTION: traced.description_of(encoder)})
    # Protobuf reads two concatenated messages as one with the fields of both, so the checksum can
    # be metadata like the description and still be the end of the file.
    entry = onnx.StringStringEntryProto(key="sha256", value=traced.CHECKSUM_PLACEHOLDER)
    end = onnx.ModelProto(metadata_props=[entry])
    path.write_bytes(traced.seal(model.SerializeToString() + end.SerializeToString()))
    traced.check_features(encoder, read(path))


def read(file: Path, device: str = "cpu") -> traced.ExportedEncoder:
    """Open a file that `write` wrote.

    Raises:
        InputError: it is not one, it is damaged, onnxruntime is missing, or the device is not cpu.
    """
    runtime = _package("onnxruntime", str(file))
    if device != "cpu":
        raise InputError(
            f"{file}: ONNX files run on the CPU here; for {device} load the run itself"
        )
    content = file.read_bytes()
    if traced.DESCRIPTION.encode() not in content:
        raise InputError(
            f"{file}: perhaps an ONNX file, but not an encoder that wcl exported, or incomplete"
        )
    traced.must_be_sealed(content, file)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        description = session.get_modelmeta().custom_metadata_map.get(traced.DESCRIPTION, "")
    except Exception as error:  # onnxruntime's errors have no other base class
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{file}: damaged, or not readable by this onnxruntime ({reason})"
        ) from error

    def compute(images: Tensor) -> Tensor:
        (features,) = session.run(["features"], {"images": images.numpy()})
        return torch.from_numpy(features)

    return traced.ExportedEncoder(file, description, compute)


def usage(description: Description, path: Path) -> list[str]:
    """Show how onnxruntime runs the file."""
    call = f'onnxruntime.InferenceSession("{path}").run(None, {{"images": images}})'
    return [call, traced.input_format(description)]


def _package(name: str, needed_by: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"{needed_by}: needs {name}; pip install 'wcl[onnx]'") from error


FORMAT = Format("encoder.onnx", write, usage, read)
