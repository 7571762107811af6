"""The interface of a pattern: it finds the sites of a graph that one kernel could compute."""

from __future__ import annotations

import abc
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tvm import relax

from ...graph.expr import dtype_of, shape_of
from ...graph.function import bindings_of, result_of, used_vars
from ...ir.workload import Workload


class GraphView:
    """Bindings of a function in normal form by variable, with their readers and positions.

    bindings   in program order
    value      what a variable is bound to
    position   of a variable's binding, -1 for parameters
    readers    variables whose binding reads a variable, once for each use
    returned   variables that the function returns
    precision  that the function was normalized for, one of :data:`PRECISIONS`
    """

    def __init__(self, func: relax.Function, precision: str = "float32") -> None:
        self.precision = precision
        self.bindings = bindings_of(func)
        self.value: dict[relax.Var, relax.Expr] = {}
        self.position: dict[relax.Var, int] = dict.fromkeys(func.params, -1)
        self.readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
        for index, binding in enumerate(self.bindings):
            self.value[binding.var] = binding.value
            self.position[binding.var] = index
            for var in used_vars(binding.value):
                self.readers[var].append(binding.var)
        self.returned = set(used_vars(result_of(func)))

    def definition(self, value: relax.Expr) -> relax.Expr:
        """Return the expression that a value is bound to; the value itself if it is a parameter
        or a constant."""
        return self.value.get(value, value) if isinstance(value, relax.Var) else value

    def only_reader(self, var: relax.Var) -> relax.Var | None:
        """Return the one variable computed from ``var``, if it is read once and not returned."""
        readers = self.readers[var]
        return readers[0] if len(readers) == 1 and var not in self.returned else None


@dataclass(frozen=True)
class Site:
    """A place that a pattern found.

    covered   variables whose bindings the kernel replaces; the first one is the root, by which
              places that compete for the same work are known
    outputs   variables that it computes, in the workload's order
    workload  the problem that backends are asked for
    inputs    operands in the workload's order: expressions over variables from outside and
              constants, of the shapes and dtypes that the workload says (see :func:`fitted`);
              an output may have another shape of as many elements and the same channels
    split     where the workload's result is cut along its last axis into the outputs: the size of
              each, in order; empty where every output is a result of its own
    joint     whether it computes several roots, which have sites of their own, for another reason
              than that it is split
    """

    covered: tuple[relax.Var, ...]
    outputs: tuple[relax.Var, ...]
    workload: Workload
    inputs: tuple[relax.Expr, ...]
    split: tuple[int, ...] = ()
    joint: bool = False


class Pattern(abc.ABC):
    """Finds sites. ``name`` is unique and becomes part of the names of subgraphs.

    ``optional`` says that TVM's own kernels run what is found as well as anybody would expect
    (pools and the like), so that no site need be taken.
    """

    name: str
    optional: bool = True

    @abc.abstractmethod
    def sites(self, graph: GraphView) -> Iterable[Site]:
        """Return all sites of a graph, overlapping ones too: placement chooses among them. The
        same, in the same order, for equal graphs."""


def why_illegal(graph: GraphView, site: Site) -> str:
    """Return why a site cannot be taken out of its graph; empty if it can.

    Every operand must be bound before the first output, where the kernel is called. Whatever
    disjoint sites are taken, none then waits for another in a circle: each is called after the
    first outputs, and so after the calls, of those that it reads from.
    """
    inside = set(site.covered)
    if not inside or len(inside) != len(site.covered):
        return "it covers nothing, or a variable twice"
    if not site.outputs or not set(site.outputs) <= inside:
        return "its outputs are not among what it covers"
    if any(var not in graph.value for var in inside):
        return "it covers a parameter or a variable of another graph"
    first = min(graph.position[var] for var in site.outputs)
    for operand in site.inputs:
        for var in used_vars(operand):
            if var in inside or var not in graph.position:
                return f"its operand {var.name} is computed inside, or in another graph"
            if graph.position[var] >= first:
                return f"its operand {var.name} is not there when its first output is"
    for var in inside - set(site.outputs):
        if var in graph.returned or any(reader not in inside for reader in graph.readers[var]):
            return f"{var.name} is needed outside and is not an output"
    return _wrong_operand(site)


def _wrong_operand(site: Site) -> str:
    operands = site.workload.operand_shapes()
    values: list[relax.Expr] = [*site.inputs, *site.outputs]
    if site.split:
        name, shape, dtype = operands.pop()
        parts = [(f"{name}[{i}]", (*shape[:-1], k), dtype) for i, k in enumerate(site.split)]
        if sum(site.split) != shape[-1]:
            return f"its parts have {sum(site.split)} channels together, not {shape[-1]}"
        operands += parts
    if len(values) != len(operands):
        return f"{len(values)} operands where the workload has {len(operands)}"
    for index, ((name, shape, dtype), value) in enumerate(zip(operands, values, strict=True)):
        value = typed(value)
        got = shape_of(value)
        reshaped = math.prod(got) == math.prod(shape) and got[-1:] == shape[-1:]
        if index >= len(site.inputs) and reshaped and dtype_of(value) == dtype:
            continue
        if (got, dtype_of(value)) != (shape, dtype):
            return f"operand {name} is {shape_of(value)} {dtype_of(value)}, not {shape} {dtype}"
    return ""


def fitted(inputs: Iterable[relax.Expr], workload: Workload) -> tuple[relax.Expr, ...]:
    """Return the first operands of a workload, those of other shapes reshaped."""
    sizes = [shape for _, shape, _ in workload.operand_shapes()]
    return tuple(
        value if shape_of(typed(value)) == shape else relax.op.reshape(value, shape)
        for value, shape in zip(inputs, sizes, strict=False)
    )


def typed(value: relax.Expr) -> relax.Expr:
    """Return a call as a variable of its type; nested calls need no scope for that."""
    if isinstance(value, relax.Tuple):
        return relax.Tuple([typed(field) for field in value.fields])
    if not isinstance(value, relax.Call):
        return value
    args = [typed(arg) for arg in value.args]
    call = relax.Call(value.op, args, value.attrs, value.ty_args)
    return relax.Var("value", relax.BlockBuilder().normalize(call).ty)
