"""`relay.frontend.from_onnx`: ONNX models as Relay.

A family module registers the converters of its operators (`@convert("Conv")`); `graph` walks the
model, folds what is constant (`fold`) and expands operators that ONNX defines by others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convoy.errors import InvalidModel, InvalidOption, LibraryMissing
from convoy.relay.analysis import free_vars
from convoy.relay.ast import Expr, Function
from convoy.relay.frontend.common import tuple_of
from convoy.relay.frontend.onnx import (
    activation,
    arithmetic,
    control_flow,
    convolution,
    creation,
    indexing,
    join,
    matmul,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduction,
    resize,
    sequences,
    shape,
    vision,
)
from convoy.relay.frontend.onnx.graph import Importer
from convoy.relay.frontend.onnx.registry import converted_ops
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule

__all__ = [
    "activation", "arithmetic", "control_flow", "convolution", "converted_ops", "creation",
    "from_onnx", "indexing", "join", "matmul", "normalization", "pooling", "quantized", "recurrent",
    "reduction", "resize", "sequences", "shape", "vision",
]  # fmt: skip


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
            parameters have their values.
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
        import onnx
    except ImportError:
        raise LibraryMissing("no package onnx", "onnx 1.16 or newer", "pip install onnx") from None
    if isinstance(model, (str, os.PathLike, bytes)):
        raise InvalidModel(f"a {type(model).__name__}", "an onnx.ModelProto", "onnx.load reads one")
    if not hasattr(model, "graph"):
        raise InvalidModel(f"a {type(model).__name__}", "an onnx.ModelProto")
    unknown = set(convert_config or ()) - {"use_nt_batch_matmul"}
    if unknown:
        raise InvalidOption(f"convert_config with '{min(unknown)}'", "use_nt_batch_matmul")
    if model.functions:
        import onnx.inliner

        model = onnx.inliner.inline_local_functions(model)
    if export_node_renamed_model_path:
        model = _named(model, export_node_renamed_model_path)
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    if opset is not None:
        opsets[""] = opset
    opsets.setdefault("", 1)
    _check_names("shape", shape or {}, model.graph)
    dtypes = {} if isinstance(dtype, str) else dict(dtype)
    _check_names("dtype", dtypes, model.graph)
    importer = Importer(opsets, dict(shape or {}), dtypes, freeze_params)
    outputs = [_expression(o) for o in importer.graph(model.graph)]
    body = tuple_of(outputs)
    used = {v.name_hint for v in free_vars(body)}
    variables = [
        v for n, v in importer.inputs.items() if n not in importer.params or v.name_hint in used
    ]
    params = {n: a for n, a in importer.params.items() if n in used}
    mod = infer_module(IRModule.from_expr(Function(variables, body)))
    return mod, {name: tvm.runtime.tensor(np.asarray(a)) for name, a in params.items()}


def _expression(output: Any) -> Expr:
    if isinstance(output, list):
        from convoy.relay.ast import Tuple

        return Tuple([_expression(o) for o in output])
    return output


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
