"""Importers of frameworks that other tools convert to ONNX, of which `from_onnx` takes over."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy.errors import InvalidModel, LibraryMissing, UnsupportedOp
from convoy.relay.frontend.onnx import from_onnx
from convoy.relay.module import IRModule

_Result = tuple[IRModule, dict[str, Any]]


def _tf2onnx() -> Any:
    try:
        import tf2onnx
    except ImportError:
        raise LibraryMissing(
            "no package tf2onnx, which reads TensorFlow and TFLite models",
            "tf2onnx 1.16 and tensorflow",
            "pip install tf2onnx tensorflow, or convert the model on another machine "
            "(python -m tf2onnx.convert) and use from_onnx",
        ) from None
    return tf2onnx


def from_tflite(
    model: Any,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: Any = None,
) -> _Result:
    """Convert a TFLite model to Relay, by tf2onnx and `from_onnx`.

    Args:
        model: The bytes of the file, or the object that `tflite.Model.GetRootAsModel` returned.
        shape_dict: Shapes of inputs by name.
        dtype_dict: Accepted: the model has the dtypes.
        op_converter: None; classes of TVM's own converter have no place here.

    Raises:
        LibraryMissing: tf2onnx is not installed.
        InvalidModel: Something other than a TFLite model.
        UnsupportedOp: As `from_onnx`, or an `op_converter`.
    """
    del dtype_dict
    if op_converter is not None:
        raise UnsupportedOp("op_converter", "None")
    table = getattr(model, "_tab", None)
    data = bytes(table.Bytes) if table is not None else model
    if not isinstance(data, bytes | bytearray) or bytes(data[4:8]) != b"TFL3":
        raise InvalidModel(f"a {type(model).__name__}", "a TFLite model")
    converter = _tf2onnx().convert
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(data)
        proto, _ = converter.from_tflite(str(path))
    return from_onnx(proto, _known_shapes(proto, shape_dict))


def from_tensorflow(
    graph: Any,
    layout: str = "NHWC",
    shape: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    convert_config: Mapping[str, Any] | None = None,
) -> _Result:
    """Convert a frozen TensorFlow graph to Relay, by tf2onnx and `from_onnx`.

    Args:
        graph: A GraphDef whose variables are constants.
        layout: Accepted: layouts are chosen when the module is compiled.
        shape: Shapes of inputs by name.
        outputs: Names of the outputs; the nodes that nothing uses by default.
        convert_config: Accepted; it chose between forms of GEMM.

    Raises:
        LibraryMissing: tf2onnx is not installed.
        InvalidModel: Something other than a GraphDef.
        UnsupportedOp: As `from_onnx`.
    """
    del layout, convert_config
    if not hasattr(graph, "node"):
        raise InvalidModel(f"a {type(graph).__name__}", "a frozen GraphDef")
    converter = _tf2onnx().convert
    inputs = [f"{n.name}:0" for n in graph.node if n.op == "Placeholder"]
    if outputs is None:
        used = {i.split(":")[0].lstrip("^") for n in graph.node for i in n.input}
        outputs = [n.name for n in graph.node if n.name not in used and n.op != "NoOp"]
    names = [o if ":" in o else f"{o}:0" for o in outputs]
    proto, _ = converter.from_graph_def(graph, input_names=inputs, output_names=names)
    return from_onnx(proto, _known_shapes(proto, shape))


def _known_shapes(proto: Any, given: Mapping[str, Sequence[int]] | None) -> dict[str, Any]:
    """Return shapes under the names of the ONNX model, which may end in `:0`."""
    names = {i.name.removesuffix(":0"): i.name for i in proto.graph.input}
    return {names.get(n.removesuffix(":0"), n): s for n, s in (given or {}).items()}


def _absent(framework: str, remedy: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> _Result:
        raise UnsupportedOp(f"a model of {framework}", "ONNX, PyTorch or Keras", remedy)

    refuse.__doc__ = f"Refuse a model of {framework}, and say how to convert it."
    return refuse


from_mxnet = _absent("MXNet", "Export it to ONNX (mxnet.onnx.export_model) and use from_onnx")
from_paddle = _absent("Paddle", "Export it to ONNX (paddle2onnx) and use from_onnx")
from_oneflow = _absent("OneFlow", "Export it to ONNX (oneflow-onnx) and use from_onnx")
from_coreml = _absent("Core ML", "Convert its source model to ONNX and use from_onnx")
from_darknet = _absent("Darknet", "Convert it to ONNX or PyTorch first")
from_caffe = _absent("Caffe", "Convert it to ONNX first")
from_caffe2 = _absent("Caffe2", "Export it to ONNX and use from_onnx")
