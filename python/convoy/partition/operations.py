"""The operations of a module in normal form, and the bytes that TVM's kernels move for them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import tvm
from tvm import relax

from ..graph.expr import dtype_of, op_name, shape_of
from ..graph.function import bindings_of, main_function, result_of, used_vars
from .match_graph import Op

_VIEWS = frozenset(f"relax.{name}" for name in ("reshape", "flatten", "expand_dims", "squeeze"))
# Element by element: TVM fuses these into the kernel that makes their operand.
FUSED = _VIEWS | frozenset(
    f"relax.{name}"
    for name in (
        *("astype", "permute_dims", "strided_slice", "add", "subtract", "multiply", "divide"),
        *("maximum", "minimum", "negative", "clip", "exp", "tanh", "sigmoid"),
        *("nn.pad", "nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu"),
        *("nn.softplus", "convoy.hardswish", "convoy.elu", "convoy.mish"),
    )
)


def results_of(module: tvm.IRModule) -> list[str]:
    """Return the names of the variables that the entry function returns, each once."""
    _, func = main_function(module)
    return list(dict.fromkeys(var.name for var in used_vars(result_of(func))))


def operations(module: tvm.IRModule, covered: Collection[str] = ()) -> tuple[Op, ...]:
    """Return the operations of the entry function in program order.

    Args:
        module: A module in normal form.
        covered: Operations that TVM need not run: no bytes are counted for them.
    """
    _, func = main_function(module)
    bindings = bindings_of(func)
    results = set(results_of(module))
    ops = [_operation(binding) for binding in bindings]
    kinds = {binding.var.name: op_name(binding.value) for binding in bindings}
    moved = _moved_bytes(ops, bindings, kinds, covered, results)
    gathered = _gathered(ops, kinds) - results
    return tuple(
        dataclasses.replace(op, moved_bytes=moved.get(op.name, 0), gathered=op.name in gathered)
        for op in ops
    )


def _operation(binding: relax.Binding) -> Op:
    reads = dict.fromkeys(var.name for var in used_vars(binding.value))
    is_tensor = isinstance(binding.var.ty, relax.TensorType)
    elements = math.prod(shape_of(binding.var)) if is_tensor else 1
    return Op(binding.var.name, tuple(reads), elements)


def _moved_bytes(
    ops: Sequence[Op],
    bindings: Sequence[relax.Binding],
    kinds: Mapping[str, str],
    covered: Collection[str],
    results: Collection[str],
) -> dict[str, int]:
    """Return the bytes that TVM's kernels move; operations that are fused into one kernel are
    counted at that kernel's result."""
    readers = Counter(name for op in ops for name in op.inputs)
    heads: dict[str, int] = {}  # what the kernel of an operation has read from outside
    moved: dict[str, int] = {}
    views = set()
    for op, binding in zip(ops, bindings, strict=True):
        read, written = _bytes(binding)
        if op.name in covered or not written:
            continue
        fused = kinds[op.name] in FUSED
        if fused and not read:
            views.add(op.name)
        heads[op.name] = read
        source = op.inputs[0] if fused and len(op.inputs) == 1 else ""
        if source in heads and readers[source] == 1 and source not in results:
            heads[op.name] = heads[source]
            del moved[source]
        moved[op.name] = heads[op.name] + written
    return {name: size for name, size in moved.items() if name not in views}


def _gathered(ops: Sequence[Op], kinds: Mapping[str, str]) -> set[str]:
    """Values that are read by one operation alone, a concatenation."""
    readers: dict[str, list[str]] = {}
    for op in ops:
        for name in op.inputs:
            readers.setdefault(name, []).append(kinds[op.name])
    return {name for name, found in readers.items() if found == ["relax.concat"]}


def _bytes(binding: relax.Binding) -> tuple[int, int]:
    """Return the bytes of a call's operands and of its result. A view reads nothing by itself."""
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(binding.var.ty, relax.TensorType):
        return 0, 0
    written = _size(binding.var)
    if op_name(call) in _VIEWS:
        return 0, written
    fields = [
        f for arg in call.args for f in (arg.fields if isinstance(arg, relax.Tuple) else [arg])
    ]
    return sum(_size(f) for f in fields if isinstance(f.ty, relax.TensorType)), written


def _size(tensor: relax.Expr) -> int:
    bits = "".join(filter(str.isdigit, dtype_of(tensor))) or "8"
    return math.prod(shape_of(tensor)) * max(1, int(bits) // 8)
