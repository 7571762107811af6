"""The dataflow of a module in normal form as plain data, for searches over the whole graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
from tvm import relax

from .expr import shape_of
from .rewriter import bindings_of, main_function, result_of, used_vars


@dataclass(frozen=True)
class Operation:
    """One binding: its variable's name, the names that it reads, the elements of its result (1 for
    a tuple)."""

    name: str
    inputs: tuple[str, ...]
    elements: int


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
        operations.append(Operation(binding.var.name, tuple(reads), elements))
    results = dict.fromkeys(var.name for var in used_vars(result_of(func)))
    return Dataflow(tuple(operations), tuple(p.name for p in func.params), tuple(results))
