"""The dataflow of a module in normal form as plain data, for searches over the whole graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import tvm
from tvm import relax

from ..graph.expr import dtype_of, op_name, shape_of
from ..graph.rewriter import bindings_of, main_function, result_of, used_vars

_VIEWS = frozenset(f"relax.{name}" for name in ("reshape", "flatten", "expand_dims", "squeeze"))
# Element by element: TVM fuses these into the kernel that makes their operand.
_FUSED = _VIEWS | frozenset(
    f"relax.{name}"
    for name in (
        *("astype", "permute_dims", "strided_slice", "add", "subtract", "multiply", "divide"),
        *("maximum", "minimum", "negative", "clip", "exp", "tanh", "sigmoid"),
        *("nn.pad", "nn.relu", "nn.silu", "nn.gelu", "nn.leakyrelu"),
    )
)


@dataclass(frozen=True)
class Operation:
    """One binding: its variable's name, the names that it reads, the elements of its result (1 for
    a tuple), the bytes of its operands and of its result (0 where no kernel is launched), whether
    TVM computes it in the kernel of the operand that only it reads, and whether it puts its
    operands behind each other."""

    name: str
    inputs: tuple[str, ...]
    elements: int
    bytes_read: int = 0
    bytes_written: int = 0
    fused: bool = False
    gathers: bool = False


@dataclass(frozen=True)
class Dataflow:
    """Operations in program order, the function's parameters, and what it returns, by name."""

    operations: tuple[Operation, ...]
    parameters: tuple[str, ...]
    results: tuple[str, ...]

    def native_bytes(self, covered: Collection[str]) -> dict[str, int]:
        """Bytes that TVM's kernels move for all operations but those ``covered``, by operation:
        what is fused into one kernel is counted where that kernel's result is."""
        readers = Counter(name for op in self.operations for name in op.inputs)
        heads: dict[str, int] = {}  # what the kernel of an operation has read from outside
        moved: dict[str, int] = {}
        for op in self.operations:
            if op.name in covered or not op.bytes_written:
                continue
            heads[op.name] = op.bytes_read
            source = op.inputs[0] if op.fused and len(op.inputs) == 1 else ""
            if source in heads and readers[source] == 1 and source not in self.results:
                heads[op.name] = heads[source]
                del moved[source]
            moved[op.name] = heads[op.name] + op.bytes_written
        views = {op.name for op in self.operations if op.fused and not op.bytes_read}
        return {name: size for name, size in moved.items() if name not in views}

    def gathered(self) -> set[str]:
        """What is read only to be put behind other tensors: cut out of a larger tensor, it is in
        the same kernel of TVM's."""
        readers: dict[str, list[Operation]] = {}
        for op in self.operations:
            for name in op.inputs:
                readers.setdefault(name, []).append(op)
        alone = {name for name, ops in readers.items() if len(ops) == 1 and ops[0].gathers}
        return alone - set(self.results)


def dataflow(mod: tvm.IRModule) -> Dataflow:
    """The dataflow of the entry function; names are those that subgraphs use."""
    _, func = main_function(mod)
    operations = []
    for binding in bindings_of(func):
        reads = dict.fromkeys(var.name for var in used_vars(binding.value))
        is_tensor = isinstance(binding.var.ty, relax.TensorType)
        elements = math.prod(shape_of(binding.var)) if is_tensor else 1
        read, written = _bytes(binding) if is_tensor else (0, 0)
        kind, name = op_name(binding.value), binding.var.name
        fused, gathers = kind in _FUSED, kind == "relax.concat"
        operations.append(Operation(name, tuple(reads), elements, read, written, fused, gathers))
    results = dict.fromkeys(var.name for var in used_vars(result_of(func)))
    return Dataflow(tuple(operations), tuple(p.name for p in func.params), tuple(results))


def _bytes(binding: relax.Binding) -> tuple[int, int]:
    """Bytes of a call's operands and of its result. A view reads nothing by itself."""
    call = binding.value
    if not isinstance(call, relax.Call):
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
