"""`relay.frontend.from_pytorch`: TorchScript graphs and exported programs as Relay.

A family module registers the converters of its operators (`@convert("conv2d")`), which take their
arguments by the names of PyTorch's schemas, so that both kinds of graph share them. Operators
without one are decomposed by PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convoy.errors import InvalidModel, InvalidOption, LibraryMissing
from convoy.relay.analysis import free_vars
from convoy.relay.ast import Expr, Function, Tuple, TupleGetItem, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import tuple_of
from convoy.relay.frontend.pytorch import (
    activation,
    arithmetic,
    convolution,
    creation,
    indexing,
    linear,
    normalization,
    quantized_operators,
    recurrent,
    reduction,
    resize,
    shape,
    splitting,
    vision,
)
from convoy.relay.frontend.pytorch.context import Context
from convoy.relay.frontend.pytorch.exported import Graph, decomposed
from convoy.relay.frontend.pytorch.registry import (
    Call,
    constant,
    converted_ops,
    dtype_name,
    to_numpy,
)
from convoy.relay.frontend.pytorch.torchscript import Script
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.types import TensorType, TupleType, Type

__all__ = [
    "activation", "arithmetic", "converted_ops", "convolution", "creation", "from_pytorch",
    "indexing", "linear", "normalization", "quantized_operators", "recurrent", "reduction",
    "resize", "shape", "splitting", "vision",
]  # fmt: skip


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[tuple[str, Any]] | None = None,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
    preserve_pytorch_scopes: bool = False,
) -> tuple[IRModule, dict[str, Any]]:
    """Convert a PyTorch model to Relay.

    Args:
        script_module: What `torch.jit.trace` or `torch.jit.script` returned, or an
            `ExportedProgram` of `torch.export.export`.
        input_infos: For each input its name and shape, or its name, shape and dtype as
            (name, (shape, dtype)). An exported program has them itself.
        custom_convert_map: Converters of operators by name: functions of the inputs and their
            dtypes that return an expression.
        default_dtype: The dtype of inputs and of floating-point results that the model does not
            determine.
        use_parser_friendly_name: Write parameter names with `_` in place of dots.
        keep_quantized_weight: Accepted: quantized weights are integers either way.
        export_renamed_c_graph_path: Where to write the TorchScript graph as text.
        preserve_pytorch_scopes: Name spans by the modules of the network, not by operators.

    Returns:
        The module, whose `main` takes the inputs and then the parameters, and the parameters by
        their names in `state_dict()`.

    Raises:
        LibraryMissing: The package torch is not installed.
        InvalidModel: A module that was neither traced, scripted nor exported, or other inputs.
        UnsupportedOp: An operator that has no converter, or a shape that depends on values.
    """
    try:
        import torch
    except ImportError:
        raise LibraryMissing(
            "no package torch", "torch 2.1 or newer", "pip install torch"
        ) from None
    context = Context(str(default_dtype), custom_convert_map or {}, decomposed)

    def rename(name: str) -> str:
        return name.replace(".", "_") if use_parser_friendly_name else name

    if hasattr(script_module, "graph_signature"):
        return _from_exported(script_module, input_infos, context, rename)
    if not isinstance(script_module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise InvalidModel(
            f"a {type(script_module).__name__}",
            "a TorchScript module or an exported program",
            "Trace it: torch.jit.trace(model.eval(), example_input)",
        )
    if not isinstance(input_infos, Sequence):
        raise InvalidOption(f"input_infos={input_infos!r}", "a list of (name, shape)")
    script = Script(context, script_module, rename, preserve_pytorch_scopes)
    types = _graph_types(script_module)
    variables = [
        _variable(info, types[i] if i < len(types) else None, str(default_dtype))
        for i, info in enumerate(input_infos)
    ]
    outputs = script.run([_fields(v) for v in variables])
    if export_renamed_c_graph_path:
        Path(export_renamed_c_graph_path).write_text(str(script_module.inlined_graph))
    return _module(outputs, variables, script.params)


def _graph_types(module: Any) -> list[Any]:
    inputs = list(module.graph.inputs())
    if inputs and inputs[0].type().kind() == "ClassType":
        del inputs[0]
    return [i.type() for i in inputs]


def _variable(info: Any, of_graph: Any, default_dtype: str) -> Var:
    """Make the variable of an input.

    Raises:
        InvalidOption: Something other than (name, shape) or (name, (shape, dtype)).
    """
    try:
        name, given = info
        return var(name, _type(given, of_graph, default_dtype))
    except (TypeError, ValueError):
        expected = "(name, shape) or (name, (shape, dtype))"
        if of_graph is not None and of_graph.kind() in ("TupleType", "ListType"):
            expected = "(name, [a shape for each item]) for a tuple or list"
        raise InvalidOption(f"input_infos with {info!r}", expected) from None


def _type(given: Any, of_graph: Any, default_dtype: str) -> Type:
    kind = of_graph.kind() if of_graph is not None else "TensorType"
    if kind in ("TupleType", "ListType"):
        parts = (
            of_graph.elements() if kind == "TupleType" else [of_graph.getElementType()] * len(given)
        )
        return TupleType([_type(g, p, default_dtype) for g, p in zip(given, parts, strict=True)])
    shape, dtype = given, None
    if (len(given) == 2 and isinstance(given[1], str)) or (
        hasattr(given, "__len__") and len(given) == 2 and isinstance(given[0], list | tuple)
    ):
        shape, dtype = given
    scalar = getattr(of_graph, "scalarType", lambda: None)() if kind == "TensorType" else None
    names = {"Float": "float32", "Double": "float64", "Half": "float16", "Int": "int32",
             "Long": "int64", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
             "BFloat16": "bfloat16"}  # fmt: skip
    found = names.get(scalar or "") or _given_dtype(dtype) or default_dtype
    return TensorType([d if not isinstance(d, np.integer) else int(d) for d in shape], found)


def _given_dtype(dtype: Any) -> str | None:
    spelled = {"float": "float32", "int": "int32", "double": "float64", "half": "float16",
               "long": "int64"}  # fmt: skip
    name = dtype_name(dtype)
    return spelled.get(name or "", name)


def _fields(value: Expr) -> Any:
    """Return the value of an input: an expression, or a tuple of those of its fields."""
    type_ = value.type_ if isinstance(value, Var) else None
    return _unpacked(value, type_) if isinstance(type_, TupleType) else value


def _unpacked(value: Expr, type_: Type) -> Any:
    if not isinstance(type_, TupleType):
        return value
    return tuple(_unpacked(TupleGetItem(value, i), t) for i, t in enumerate(type_.fields))


def _module(
    outputs: Sequence[Any], variables: Sequence[Var], params: Mapping[str, np.ndarray]
) -> tuple[IRModule, dict[str, Any]]:
    """Make the module of converted outputs."""
    body = tuple_of([_expression(o) for o in outputs])
    used = [v for v in free_vars(body) if v not in variables]
    names = {v.name_hint for v in used}
    mod = infer_module(IRModule.from_expr(Function([*variables, *used], body)))
    return mod, {n: tvm.runtime.tensor(a) for n, a in params.items() if n in names}


def _expression(output: Any) -> Expr:
    """Make an expression of an output: lists and dicts become tuples, numbers 0-d tensors.

    Raises:
        InvalidModel: None, or an object.
    """
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return Tuple([_expression(o) for o in output if o is not None])
    try:
        return Call("output", {"of the model": output}, "float32")["of the model"]
    except Exception:
        raise InvalidModel(f"an output that is a {type(output).__name__}", "tensors") from None


def _from_exported(
    program: Any, infos: Sequence[Any] | None, context: Context, rename: Callable[[str], str]
) -> tuple[IRModule, dict[str, Any]]:
    """Convert an exported program; `infos` may rename its inputs."""
    import torch
    from torch.export.graph_signature import InputKind, OutputKind

    variables: list[Var] = []
    inputs: list[Any] = []
    params: dict[str, np.ndarray] = {}
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    state = {**program.state_dict, **program.constants}
    for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                inputs.append(value)
                continue
            place = len(variables)
            name = infos[place][0] if infos and place < len(infos) else node.name
            dims = tuple(d if isinstance(d, int) else _symbolic(d, name) for d in value.shape)
            variables.append(var(name, shape=dims, dtype=dtype_name(value.dtype) or "float32"))
            inputs.append(variables[-1])
        elif spec.kind == InputKind.CONSTANT_TENSOR or spec.target not in program.state_dict:
            inputs.append(constant(state[spec.target]))
        else:
            name, array = rename(spec.target), to_numpy(state[spec.target])
            params[name] = array
            inputs.append(var(name, shape=array.shape, dtype=array.dtype.name))
    attributes = {
        n.target: constant(getattr(program.graph_module, n.target))
        for n in program.graph.nodes
        if n.op == "get_attr" and isinstance(getattr(program.graph_module, n.target), torch.Tensor)
    }
    found = Graph(context, program.graph, attributes).run(inputs)
    specs = program.graph_signature.output_specs
    outputs = [o for o, s in zip(found, specs, strict=True) if s.kind == OutputKind.USER_OUTPUT]
    return _module(outputs, variables, params)


def _symbolic(dim: Any, name: str) -> int:
    raise InvalidModel(
        f"input '{name}' with the symbolic size {dim}", "sizes", "Export without dynamic_shapes"
    )
