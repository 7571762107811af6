"""The walk over an FX graph of ATen operators: exported programs, and decompositions."""

from __future__ import annotations

import operator as py
from collections.abc import Mapping
from typing import Any

from convoy.errors import InvalidModel, UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dtype_of
from convoy.relay.frontend.pytorch.context import Context, bound, example, known, operator
from convoy.relay.frontend.pytorch.registry import Call, constant
from convoy.relay.frontend.pytorch.values import Values, View, write_back
from convoy.relay.frontend.spans import mark


class Graph:
    """The conversion of an FX graph.

    Attributes:
        context: Converts calls.
        attributes: Values of `get_attr` nodes by name.
    """

    def __init__(self, context: Context, graph: Any, attributes: Mapping[str, Any]) -> None:
        self.context, self.graph, self.attributes = context, graph, attributes
        self.values = Values()

    def run(self, inputs: list[Any]) -> Any:
        """Convert the graph for given inputs; return what its output node has."""
        left = iter(inputs)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(left)
            elif node.op == "get_attr":
                self.values[node] = self.attributes[node.target]
            elif node.op == "output":
                return self._read(node.args[0])
            elif node.op == "call_function":
                self._call(node)
            else:
                raise UnsupportedOp(f"FX node {node.op} {node.target}", "a call of an operator")
        raise InvalidModel("a graph without an output")

    def _read(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.fx.Node):
            return self.values[value]
        if isinstance(value, list | tuple):
            return type(value)(map(self._read, value)) if type(value) in (list, tuple) else [
                self._read(v) for v in value
            ]  # fmt: skip
        if isinstance(value, dict):
            return {k: self._read(v) for k, v in value.items()}
        return value

    def _call(self, node: Any) -> None:
        import torch

        target = node.target
        if target is py.getitem:
            self.values[node] = self._read(node.args[0])[node.args[1]]
            return
        if not isinstance(target, torch._ops.OpOverload):
            if getattr(target, "__module__", "") in ("_operator", "math"):
                numbers = [known(self._read(a)) for a in node.args]
                if not any(isinstance(a, Expr) for a in numbers):
                    self.values[node] = target(*numbers)
                    return
            raise UnsupportedOp(
                f"{getattr(target, '__name__', target)} in an exported program", "ATen operators",
                "Export with fixed shapes, and without control flow that depends on values",
            )  # fmt: skip
        name, overload = target._schema.name, target._schema.overload_name
        args = self._arguments(target, node)
        if name in ("aten::sym_size", "aten::_assert_async", "aten::_assert_scalar"):
            size = name == "aten::sym_size"
            self.values[node] = self._size(args) if size else None
            return
        result = self.context.convert(name, overload, args)
        mark(result, node.name)
        if name.endswith("_") and not name.endswith("__"):
            before = self.values[node.args[0]]
            if isinstance(before, Expr) and isinstance(result, Expr):
                result = cast(result, dtype_of(before))
            self.values.update(node.args[0], result)
            self.values.alias(node, node.args[0])
            return
        self.values[node] = result
        key = next(iter(args), "")
        if isinstance(result, Expr) and isinstance(args.get(key), Expr) and node.args:
            write = write_back(Call(name, args, self.context.default_dtype))
            if write is not None:

                def forward(base: Expr) -> Any:
                    return self.context.convert(name, overload, {**args, key: base})

                self.values.view(node, View(node.args[0], forward, write))

    def _size(self, args: Mapping[str, Any]) -> int:
        from convoy.relay.frontend.common import infer_shape

        return infer_shape(args["self"])[args["dim"]]

    def _arguments(self, target: Any, node: Any) -> dict[str, Any]:
        """Return all arguments by name, defaults included."""
        args = {}
        for place, argument in enumerate(target._schema.arguments):
            if place < len(node.args) and not argument.kwarg_only:
                args[argument.name] = self._read(node.args[place])
            elif argument.name in node.kwargs:
                args[argument.name] = self._read(node.kwargs[argument.name])
            elif argument.has_default_value():
                args[argument.name] = argument.default_value
        return args


def decomposed(
    context: Context, name: str, overload: str, args: Mapping[str, Any]
) -> tuple[Any] | None:
    """Convert an operator by what PyTorch decomposes it into.

    Returns:
        The result, in a tuple; None where it does not decompose.
    """
    from torch.export import default_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    target = operator(name, overload)
    if target is None:
        return None
    tensors: list[Expr] = []

    def place(value: Any) -> Any:
        if isinstance(value, Expr):
            tensors.append(value)
            return _Slot(len(tensors) - 1)
        return type(value)(map(place, value)) if isinstance(value, list | tuple) else value

    def fill(value: Any, given: tuple[Any, ...]) -> Any:
        if isinstance(value, _Slot):
            return given[value.index]
        if isinstance(value, list | tuple):
            return type(value)(fill(v, given) for v in value)
        return value

    slots = {n: place(v) for n, v in args.items()}
    positional, keywords = bound(target, slots)

    def run(*given: Any) -> Any:
        return target(*fill(positional, given), **{k: fill(v, given) for k, v in keywords.items()})

    try:
        traced = make_fx(run, decomposition_table=dict(default_decompositions()))(
            *(example(t) for t in tensors)
        )
    except Exception:  # of any class: the operator cannot be traced
        return None
    attributes = {
        n.target: constant(getattr(traced, n.target))
        for n in traced.graph.nodes
        if n.op == "get_attr"
    }
    return (Graph(context, traced.graph, attributes).run(list(tensors)),)


class _Slot:
    """The place of a tensor among the arguments of a call."""

    def __init__(self, index: int) -> None:
        self.index = index
