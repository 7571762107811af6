"""`relay.frontend.from_onnx`: ONNX models as Relay, by the converters of :mod:`convoy.onnx`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convoy.errors import InvalidModel, InvalidOption, LibraryMissing
from convoy.onnx.call import CONVERTERS
from convoy.onnx.importer import Importer, element_type
from convoy.onnx.weights import Weights
from convoy.relay.analysis import free_vars
from convoy.relay.ast import Expr, Function, Tuple, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import tuple_of
from convoy.relay.frontend.onnx.builder import RelayBuilder
from convoy.relay.frontend.onnx.native import NATIVE
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.types import Any as AnyDim

__all__ = ["converted_ops", "from_onnx"]


def converted_ops() -> list[str]:
    """Return the names of all operators that have a converter."""
    names = {*CONVERTERS, *NATIVE}
    return sorted(f"{domain}.{name}" if domain else name for domain, name in names)


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """Convert an ONNX model to Relay.

    Args:
        model: An `onnx.ModelProto`.
        shape: Shapes of inputs by name; the model's own where one is left out.
        dtype: Dtypes of inputs by name; a single one has no effect, as in TVM 0.18: the model has
            the dtypes.
        opset: The opset to read the model with, its own by default.
        freeze_params: Make initializers constants. Otherwise they are variables, and the returned
            parameters have their values; vectors of int64, which shapes are computed from, stay
            constants.
        convert_config: `use_nt_batch_matmul` is accepted; both forms compile to the same GEMM.
        export_node_renamed_model_path: Where to save the model with names for nodes without one.

    Returns:
        The module, whose `main` takes the model's inputs in order (then the parameters, unless
        frozen), and the parameters by name.

    Raises:
        LibraryMissing: The package onnx is not installed.
        InvalidModel: Something other than a model, or a graph that does not hold together.
        UnsupportedOp: Operators that have no converter, or an input that must be a constant.
        InvalidOption: Shapes or dtypes of inputs that the model does not have.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise LibraryMissing("no package onnx", "onnx 1.16 or newer", "pip install onnx") from None
    if isinstance(model, (str, os.PathLike, bytes)):
        raise InvalidModel(f"a {type(model).__name__}", "an onnx.ModelProto", "onnx.load reads one")
    if not hasattr(model, "graph"):
        raise InvalidModel(f"a {type(model).__name__}", "an onnx.ModelProto")
    unknown = set(convert_config or ()) - {"use_nt_batch_matmul"}
    if unknown:
        raise InvalidOption(f"convert_config with '{min(unknown)}'", "use_nt_batch_matmul")
    if export_node_renamed_model_path:
        model = _named(model, export_node_renamed_model_path)
    shapes, dtypes = dict(shape or {}), {} if isinstance(dtype, str) else dict(dtype)
    _check_names("shape", shapes, model.graph)
    _check_names("dtype", dtypes, model.graph)
    importer = Importer(model, Weights(None), RelayBuilder())
    if opset is not None:
        importer.opsets["ai.onnx"] = opset
    inputs = {
        value.name: var(value.name, dtype=_dtype(value, dtypes), shape=_sizes(value, shapes))
        for value in importer.inputs()
    }
    params = {} if freeze_params else _parameters(importer)
    outputs = importer.outputs({**inputs, **params}, [o.name for o in model.graph.output])
    body = tuple_of([_expression(output) for output in outputs])
    used = free_vars(body)
    params = {name: value for name, value in params.items() if value in used}
    mod = infer_module(IRModule.from_expr(Function([*inputs.values(), *params.values()], body)))
    arrays = {name: importer.parameters[id(value)] for name, value in params.items()}
    return mod, {name: tvm.runtime.tensor(np.asarray(a)) for name, a in arrays.items()}


def _expression(output: Any) -> Expr:
    """A sequence is a tuple."""
    return Tuple([_expression(o) for o in output]) if isinstance(output, list) else output


def _sizes(value: Any, shapes: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    """Return the shape of an input, in which sizes that the model leaves open are `relay.Any`."""
    if value.name in shapes:
        return tuple(shapes[value.name])
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise InvalidModel(
            f"input '{value.name}' without a shape", "one", "Pass shape={name: (...)}"
        )
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else AnyDim()
        for d in tensor.shape.dim
    )


def _dtype(value: Any, dtypes: Mapping[str, str]) -> str:
    return dtypes.get(value.name) or element_type(value)


def _parameters(importer: Importer) -> dict[str, Var]:
    """Make variables of the initializers."""
    found = {}
    for name, array in importer.initializers(importer.model.graph).items():
        if array.dtype != "int64" or array.ndim > 1:
            found[name] = var(name, shape=array.shape, dtype=array.dtype.name)
            importer.parameters[id(found[name])] = array
    return found


def _check_names(option: str, given: Mapping[str, Any], graph: Any) -> None:
    names = [i.name for i in graph.input]
    for name in given:
        if name not in names:
            raise InvalidOption(f"{option} of '{name}'", f"an input: {', '.join(names)}")


def _named(model: Any, folder: str) -> Any:
    """Name the nodes that have no name, and save the model as 0.18 did, in a folder."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    counts: dict[str, int] = {}
    for node in copy.graph.node:
        number = counts[node.op_type] = counts.get(node.op_type, -1) + 1
        node.name = node.name or f"{node.op_type}_{number}"
    os.makedirs(folder, exist_ok=True)
    onnx.save(copy, os.path.join(folder, "renamed.onnx"))
    return copy
