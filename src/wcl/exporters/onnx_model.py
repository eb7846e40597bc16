"""ONNX: a file that onnxruntime and many other programs run without torch."""

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcl.exporters import traced
from wcl.exporters.format import Format
from wcl.models.description import Description
from wcl.models.encoder import Encoder
from wcl.system.errors import InputError


def write(encoder: Encoder, path: Path) -> None:
    """Write the encoder for batches of any size, and compare the file with it in onnxruntime."""
    onnx, _ = _package("onnx", "--to onnx"), _package("onnxruntime", "--to onnx")
    with traced.tracing(encoder, "onnx") as (network, images):
        torch.onnx.export(
            network,
            (images,),
            path,
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "batch"}, "features": {0: "batch"}},
            dynamo=False,  # the other exporter needs one more package
        )
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
        InputError: it is not one, it is damaged, onnxruntime is missing or cannot load it, or the
            device is not cpu.
    """
    runtime = _package("onnxruntime", str(file))
    if device != "cpu":
        raise InputError(f"{file}: ONNX files run only on the CPU; for {device} load the run")
    content, options = traced.read_sealed(file), runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no other base class
        reason = str(error).splitlines()[0]
        raise InputError(f"{file}: this onnxruntime cannot load it ({reason})") from error

    def compute(images: Tensor) -> Tensor:
        (features,) = session.run(["features"], {"images": images.numpy()})
        return torch.from_numpy(features)

    metadata = session.get_modelmeta().custom_metadata_map
    return traced.ExportedEncoder(file, metadata[traced.DESCRIPTION], compute)


def usage(description: Description, path: Path) -> list[str]:
    """Show how onnxruntime runs the file."""
    return [
        "import numpy, onnxruntime",
        traced.example_images(description, "numpy.zeros(SHAPE, 'float32')"),
        f"onnxruntime.InferenceSession({str(path)!r}).run(None, {{'images': images}})",
    ]


def _package(name: str, needed_by: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"{needed_by}: needs {name}; pip install 'wcl-torch[onnx]'") from error


FORMAT = Format("encoder.onnx", write, usage, read)
