"""What reads and writes the values of a network, and whether it can where those are slices."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tvm import relax

from ..graph.expr import is_tensor, op_name, relax_ops
from ..graph.function import bindings_of, result_of, used_vars

#: External functions, with the places of the tensors in a call (the output last) that may be
#: slices.
Sliceable = Mapping[str, Collection[int]]
CALL, CONCAT, SLICE = "relax.call_dps_packed", "relax.concat", "relax.strided_slice"
#: Operators whose results are views of their operands, or may be.
_VIEWS = relax_ops("reshape flatten squeeze expand_dims permute_dims layout_transform")
#: Operators whose kernels on a GPU have several results, of tensors that are reshaped for them.
_RESHAPED = relax_ops("scatter_elements scatter_nd sort argsort topk")


class Uses:
    """The values of a function with the calls that read them; of its results, None."""

    def __init__(self, func: relax.Function) -> None:
        self.values: dict[relax.Var, relax.Expr] = {}
        self.readers: dict[relax.Var, list[tuple[relax.Var | None, relax.Expr]]] = {}
        for binding in bindings_of(func):
            self.values[binding.var] = binding.value
            for var in dict.fromkeys(used_vars(binding.value)):
                self.readers.setdefault(var, []).append((binding.var, binding.value))
        for var in dict.fromkeys(used_vars(result_of(func))):
            self.readers.setdefault(var, []).append((None, var))

    def functions_beside(self) -> set[str]:
        """The external functions that read or write concatenations, their parts, or slices."""
        moved: set[relax.Var] = set()
        for var, value in self.values.items():
            if op_name(value) in (CONCAT, SLICE):
                moved.update([var, *used_vars(value)])
        return {
            str(value.args[0].global_symbol)
            for var, value in self.values.items()
            if isinstance(value, relax.Call)
            and op_name(value) == CALL
            and not moved.isdisjoint([var, *used_vars(value)])
        }

    def can_be_written(self, var: relax.Var, sliceable: Sliceable) -> bool:
        """Whether a value can be a slice for the kernel that computes it."""
        value = self.values.get(var)
        name = op_name(value)
        if isinstance(value, relax.Call) and name == CALL:
            symbol, fields = str(value.args[0].global_symbol), value.args[1].fields
            return is_tensor(var) and len(fields) in sliceable.get(symbol, ())
        return is_tensor(var) and _is_kernel(name)

    def can_be_read(
        self, var: relax.Var, sliceable: Sliceable, but: relax.Var | None = None
    ) -> bool:
        """Whether a value can be a slice for all that read it, ``but`` for what computes this."""
        return all(
            reader is not None and (reader == but or _reads_slices(value, var, sliceable))
            for reader, value in self.readers.get(var, [])
        )


def _reads_slices(value: relax.Expr, var: relax.Var, sliceable: Sliceable) -> bool:
    name = op_name(value)
    if isinstance(value, relax.Call) and name == CALL:
        symbol, fields = str(value.args[0].global_symbol), value.args[1].fields
        places = [i for i, operand in enumerate(fields) if operand == var]
        return all(place in sliceable.get(symbol, ()) for place in places)
    return _is_kernel(name)


def _is_kernel(name: str) -> bool:
    """Whether an operator is a kernel of TVM's that indexes its operands."""
    is_call = name.startswith("relax.call_")
    return bool(name) and name not in _VIEWS | _RESHAPED and not is_call
