"""Replace the selected subgraphs by calls of external functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import tvm
from tvm import relax

from ..errors import InvalidOption
from ..graph.expr import as_numpy, dtype_of, is_const, make_const, op_name, permutation_of, shape_of
from ..graph.function import bindings_of, main_function
from ..graph.rewriter import Rewriter
from ..ir.operands import read_ahead
from ..ir.workload import Workload
from .match_graph import Subgraph
from .subgraphs import find_subgraphs


def rewrite(
    mod: tvm.IRModule,
    chosen: Mapping[str, str],
    external_module: tvm.runtime.Module | None = None,
    subgraphs: Iterable[Subgraph] | None = None,
    folded: dict[relax.Expr, relax.Expr] | None = None,
) -> tvm.IRModule:
    """Replace subgraphs by ``call_dps_packed`` of external functions.

    ``chosen`` maps ids of subgraphs of ``mod`` (see ``find_subgraphs``) to symbols. A function gets
    the workload's operands in order, outputs last (see ``Workload``). ``external_module`` provides
    the symbols and is linked into the executable; without it they are looked up among the global
    functions when the virtual machine starts. ``folded`` keeps constants that operands fold into
    for the next time that the same subgraphs are replaced.

    Raises InvalidOption for an unknown subgraph or for two subgraphs that share an operation.
    """
    if subgraphs is None:
        subgraphs = find_subgraphs(mod) if chosen else ()
    by_id = {subgraph.id: subgraph for subgraph in subgraphs}
    by_output: dict[str, tuple[Subgraph, str]] = {}
    taken: dict[str, str] = {}
    for subgraph_id, symbol in chosen.items():
        subgraph = by_id.get(subgraph_id)
        if subgraph is None:
            raise InvalidOption(f"subgraph {subgraph_id!r}", "the id of a subgraph of this module")
        for name in subgraph.ops:
            if name in taken:
                raise InvalidOption(
                    f"subgraphs {taken[name]!r} and {subgraph_id!r}, which both cover {name}",
                    "subgraphs that share no operation",
                )
            taken[name] = subgraph_id
        by_output[subgraph.outputs[0]] = (subgraph, symbol)
    mod = _ReplaceSubgraphs(by_output, {} if folded is None else folded)(mod)
    if external_module is not None:
        attached = list((mod.attrs or {}).get("external_mods", []))
        mod = mod.with_attr("external_mods", [*attached, external_module])
    return mod


def with_constant_weights(mod: tvm.IRModule, workloads: Mapping[str, Workload]) -> set[str]:
    """External functions of a rewritten module, known by their workloads, whose weights are
    constants in every call: nothing writes them while the module runs."""
    constant: dict[str, bool] = {}
    for binding in bindings_of(main_function(mod)[1]):
        call = binding.value
        if op_name(call) == "relax.call_dps_packed":
            symbol, operands = str(call.args[0].global_symbol), list(call.args[1])
            places = read_ahead(workloads[symbol]) if symbol in workloads else (1,)
            known = len(operands) > max(places) and all(is_const(operands[i]) for i in places)
            constant[symbol] = constant.get(symbol, True) and known
    return {symbol for symbol, known in constant.items() if known}


class _ReplaceSubgraphs(Rewriter):
    """Emits a subgraph's call in place of its first output: all operands are bound there, and no
    output is read earlier. Covered bindings become dead code."""

    def __init__(
        self,
        by_output: Mapping[str, tuple[Subgraph, str]],
        folded: dict[relax.Expr, relax.Expr],
    ) -> None:
        super().__init__()
        self._by_output = by_output
        self._folded = folded
        self._second: dict[str, relax.Expr] = {}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = self.old.var.name
        if name in self._second:
            return self._as_bound(self._second[name])
        if name not in self._by_output:
            return None
        subgraph, symbol = self._by_output[name]
        args = [self._operand(operand) for operand in subgraph.inputs]
        sizes = subgraph.require_workload().operand_shapes()
        types = [relax.TensorType(shape, dtype) for _, shape, dtype in sizes]
        for (operand, shape, dtype), arg in zip(sizes, args, strict=False):
            if (shape_of(arg), dtype_of(arg)) != (shape, dtype):
                raise AssertionError(f"{subgraph.id}: operand {operand} is {arg.ty}")
        outputs = types[len(args) :]
        if subgraph.split:
            result = self.emit(relax.op.call_dps_packed(symbol, args, out_ty=outputs))
            return self._as_bound(self._cut(subgraph, result))
        result = self.emit(relax.op.call_dps_packed(symbol, args, out_ty=outputs), name)
        if len(outputs) == 1:
            return self._as_bound(result)
        items = [self.emit(relax.TupleGetItem(result, i)) for i in range(len(outputs))]
        self._second[subgraph.outputs[1]] = items[1]
        return self._as_bound(items[0])

    def _operand(self, operand: relax.Expr) -> relax.Expr:
        """Return an operand as a variable or constant; a reshape is made once for all who read
        it."""
        if operand not in self._folded:
            self._folded[operand] = _folded(operand)
        value = self.rename(self._folded[operand])
        if op_name(value) == "relax.reshape":
            source = self.emit(value.args[0])
            return self.reshaped(source, shape_of(self.builder.normalize(value)))
        return self.emit(value)

    def _as_bound(self, result: relax.Expr) -> relax.Expr:
        """Return a result in the shape of the variable that it is bound to."""
        var = self.old.var
        return self.reshaped(self.emit(result, var.name), shape_of(var))

    def _cut(self, subgraph: Subgraph, result: relax.Expr) -> relax.Expr:
        """Return the first part of a result; the others are cut where they were bound."""
        ends = list(itertools.accumulate(subgraph.split))
        axis = len(shape_of(result)) - 1
        parts = [
            relax.op.strided_slice(result, axes=[axis], begin=[end - size], end=[end])
            for size, end in zip(subgraph.split, ends, strict=True)
        ]
        self._second.update(zip(subgraph.outputs[1:], parts[1:], strict=True))
        return parts[0]


def _folded(operand: relax.Expr) -> relax.Expr:
    """Fold a transposed constant, or a concatenation of constants, into one constant; return other
    expressions unchanged."""
    value = None if is_const(operand) else _value(operand)
    return operand if value is None else make_const(value)


def _value(expr: relax.Expr) -> np.ndarray | None:
    if is_const(expr):
        return as_numpy(expr)
    if op_name(expr) == "relax.reshape":
        value = _value(expr.args[0])
        return None if value is None else value.reshape([int(d) for d in expr.args[1].values])
    if op_name(expr) == "relax.permute_dims":
        value = _value(expr.args[0])
        return None if value is None else value.transpose(permutation_of(expr))
    if op_name(expr) == "relax.concat":
        parts = [_value(part) for part in expr.args[0]]
        known = [part for part in parts if part is not None]
        return np.concatenate(known, int(expr.attrs.axis)) if len(known) == len(parts) else None
    return None
