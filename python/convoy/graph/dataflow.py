"""The dataflow of a module in normal form as plain data, for searches over the whole graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
from tvm import relax

from .expr import dtype_of, op_name, shape_of
from .rewriter import bindings_of, main_function, result_of, used_vars

_VIEWS = frozenset(f"relax.{name}" for name in ("reshape", "flatten", "expand_dims", "squeeze"))


@dataclass(frozen=True)
class Operation:
    """One binding: its variable's name, the names that it reads, the elements of its result (1 for
    a tuple), and the bytes that a kernel for it would move (0 where none is launched)."""

    name: str
    inputs: tuple[str, ...]
    elements: int
    bytes_moved: int = 0


@dataclass(frozen=True)
class Dataflow:
    """Operations in program order, the function's parameters, and what it returns, by name."""

    operations: tuple[Operation, ...]
    parameters: tuple[str, ...]
    results: tuple[str, ...]


def dataflow(mod: tvm.IRModule) -> Dataflow:
    """The dataflow of the entry function; names are those that regions use."""
    _, func = main_function(mod)
    operations = []
    for binding in bindings_of(func):
        reads = dict.fromkeys(var.name for var in used_vars(binding.value))
        is_tensor = isinstance(binding.var.ty, relax.TensorType)
        elements = math.prod(shape_of(binding.var)) if is_tensor else 1
        moved = _bytes_moved(binding) if is_tensor else 0
        operations.append(Operation(binding.var.name, tuple(reads), elements, moved))
    results = dict.fromkeys(var.name for var in used_vars(result_of(func)))
    return Dataflow(tuple(operations), tuple(p.name for p in func.params), tuple(results))


def _bytes_moved(binding: relax.Binding) -> int:
    """Every operand read and the result written once; views and names move nothing."""
    call = binding.value
    if not isinstance(call, relax.Call) or op_name(call) in _VIEWS:
        return 0
    fields = [
        f for arg in call.args for f in (arg.fields if isinstance(arg, relax.Tuple) else [arg])
    ]
    tensors = [value for value in fields if isinstance(value.ty, relax.TensorType)]
    return sum(math.prod(shape_of(v)) * _size(dtype_of(v)) for v in (*tensors, binding.var))


def _size(dtype: str) -> int:
    return max(1, int("".join(filter(str.isdigit, dtype)) or 8) // 8)
