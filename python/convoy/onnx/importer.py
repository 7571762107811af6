"""Walk an ONNX graph and emit its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConvoyError, InvalidModel, InvalidOption, UnsupportedDtype, UnsupportedOp
from . import ops  # noqa: F401  (registers the converters)
from .builder import Builder, Expr
from .call import CONVERTERS, Call, Converter, Value, checked_dtype
from .fold import fold, fold_any
from .functions import has_function, schema_function
from .ops import selection
from .selected import check_sized
from .weights import Weights, attributes

if TYPE_CHECKING:
    import onnx

#: Nodes that one model may become: a loop that is unrolled stops there.
MOST_NODES = 200_000

#: Characters of a reason that is repeated in an error; longer ones describe objects of TVM.
_LONGEST_REASON = 120

#: What to do about operators of other domains, by how the domain begins.
_REMEDIES = {
    "com.microsoft": "Give the model as it was before onnxruntime optimized it, or save it with "
    "graph_optimization_level=ORT_ENABLE_BASIC",
    "ai.onnx.ml": "Export the network alone: trees and tables are no networks",
    "ai.onnx.contrib": "Export without the steps before and behind the network",
    "org.pytorch.aten": "Export with operators of ONNX alone",
}


class Importer:
    """The conversion of one model.

    Args:
        model: The model.
        weights: Reads its tensors.
        builder: Emits the results.

    Attributes:
        opsets: Versions by domain.
        parameters: Arrays of expressions by their id: what a variable has as its value, for uses
            that must know it.
    """

    def __init__(self, model: onnx.ModelProto, weights: Weights, builder: Builder) -> None:
        self.model, self.weights, self.builder = model, weights, builder
        self.opsets = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
        self.parameters: dict[int, np.ndarray] = {}
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._constants: dict[int, tuple[np.ndarray, Expr]] = {}
        self._nodes = 0
        self._within: list[tuple[str, str, str]] = []

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs of the model that are not weights."""
        graph = self.model.graph
        known = {tensor.name for tensor in graph.initializer}
        known |= {tensor.values.name for tensor in graph.sparse_initializer}
        return [value for value in graph.input if value.name not in known]

    def initializers(self, graph: onnx.GraphProto) -> dict[str, np.ndarray]:
        """The weights of a graph by name."""
        found = {tensor.name: self.weights.array(tensor) for tensor in graph.initializer}
        for tensor in graph.sparse_initializer:
            found[tensor.values.name] = self.weights.sparse(tensor)
        return found

    def outputs(self, given: Mapping[str, Value], names: Sequence[str]) -> list[Any]:
        """Emit what tensors need; return their values, lists for sequences.

        Args:
            given: Expressions of the inputs, and of weights that are to be variables, by name, and
                arrays of inputs that are constants.
            names: Names of tensors.

        Raises:
            InvalidOption: A name that no tensor of the model has.
            UnsupportedOp: An operator, or a use of one, without a converter.
            InvalidModel: A model that contradicts itself.
        """
        nodes = _needed(self.model.graph, names)
        scope: dict[str, Value] = {}
        self.enter(self.model.graph, scope, nodes, given)
        return [self._output(scope.get(name), name) for name in names]

    def _output(self, value: Value, name: str) -> Any:
        check_sized(value)
        if isinstance(value, np.ndarray):
            return self.constant(value)
        if isinstance(value, list):
            return [self._output(item, name) for item in value]
        if not self.builder.is_expr(value):
            raise UnsupportedOp(f"an output {name!r} that is a missing value", "tensors")
        return value

    def constant(self, array: np.ndarray) -> Expr:
        """A constant; the same one for the same array."""
        found = self._constants.get(id(array))
        if found is None:
            checked_dtype(array.dtype, "a constant")
            # Kept with the array, whose id is not given to another one then.
            found = self._constants[id(array)] = (array, self.builder.constant(array))
        return found[1]

    # ---- walking

    def enter(
        self,
        graph: onnx.GraphProto,
        scope: dict[str, Value],
        nodes: Iterable[onnx.NodeProto] | None = None,
        given: Mapping[str, Value] | None = None,
    ) -> None:
        """Add the values of a graph (the model's or that of an attribute) to ``scope``.

        Args:
            nodes: Those to emit; all by default.
            given: Values by name, in place of the graph's own.
        """
        scope.update(self.initializers(graph))
        scope.update(given or {})
        self.run(graph.node if nodes is None else nodes, scope, self.opsets)

    def run(
        self,
        nodes: Iterable[onnx.NodeProto],
        scope: dict[str, Value],
        opsets: Mapping[str, int],
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """Add the results of nodes to ``scope``; ``given`` are the attributes of a function."""
        for node in nodes:
            self._nodes += 1
            if self._nodes > MOST_NODES:
                raise UnsupportedOp(f"a model of over {MOST_NODES} nodes with its loops unrolled")
            inputs = []
            for name in node.input:
                if name and name not in scope:
                    raise InvalidModel(
                        f"input {name!r} of {node.op_type} {node.name!r}, which nothing computes",
                        "a model whose nodes are in order",
                    )
                inputs.append(scope[name] if name else None)
            attrs = attributes(node.attribute, given or {}, self.weights)
            domain = "" if node.domain == "ai.onnx" else node.domain
            version = opsets.get(domain or "ai.onnx", 1)
            used = max((i + 1 for i, name in enumerate(node.output) if name), default=0)
            name = node.name or (node.output[0] if node.output else "")
            call = Call(
                self, node.op_type, inputs, attrs, version, used, name, scope, tuple(node.input)
            )
            result = self.call(call, domain, node.overload)
            results = result if isinstance(result, tuple) else (result,)
            for name, value in zip(node.output, results, strict=False):
                if name:
                    scope[name] = value
            if missing := [name for name in node.output[len(results) :] if name]:
                raise call.unsupported(f"whose output {missing[0]!r} is used", "its first outputs")

    def call(self, call: Call, domain: str = "", overload: str = "") -> Any:
        """The value (a tuple of several) of one operator, or of a function of the model.

        Raises:
            UnsupportedOp: There is no converter for it.
        """
        if (function := self._functions.get((domain, call.op, overload))) is not None:
            return self._expand(function, call)
        try:
            return self._emitted(call, domain)
        except ConvoyError:
            if domain == "" and (folded := fold_any(call)) is not None:
                return folded
            raise

    def _emitted(self, call: Call, domain: str) -> Any:
        try:
            if domain == "" and selection.is_selection(call):
                return selection.convert(call)
            for value in call.inputs:
                check_sized(value)
            if domain == "" and (folded := fold(call)) is not None:
                return folded
            if (found := self._converter(domain, call.op)) is not None:
                with call.naming():
                    return self._typed(found(call), call)
            if (body := schema_function(call, domain)) is not None:
                return self._expand(*body)
        except ConvoyError:
            raise
        except Exception as err:  # of a converter, or of TVM's type inference
            text = [line for line in str(err).strip().splitlines() if len(line) <= _LONGEST_REASON]
            raise call.contradiction(
                f"that does not convert ({': '.join([type(err).__name__, *text[-1:]])})",
                "inputs and attributes that fit together",
                "CONVOY_TRACEBACK=1 shows where.",
            ) from err
        raise self._unknown(call, domain)

    def _converter(self, domain: str, op: str) -> Converter | None:
        return self.builder.native.get((domain, op)) or CONVERTERS.get((domain, op))

    def _unknown(self, call: Call, domain: str) -> UnsupportedOp:
        """The error for an operator without a converter, which lists all of the model's."""
        first, found = domain, {f"{domain}.{call.op}" if domain else call.op}
        for node in self.model.graph.node:
            domain = "" if node.domain == "ai.onnx" else node.domain
            key = domain, node.op_type, node.overload
            if key in self._functions or self._converter(domain, node.op_type):
                continue
            if not has_function(domain, node.op_type, self.opsets.get(domain or "ai.onnx", 1)):
                found.add(f"{domain}.{node.op_type}" if domain else node.op_type)
        remedies = (text for start, text in _REMEDIES.items() if first.startswith(start))
        return UnsupportedOp(
            f"ONNX operators without a converter: {', '.join(sorted(found))} (the first is "
            f"{call.name!r}, of opset {call.version})",
            "operators that docs/reference/onnx.md lists",
            next(remedies, "Replace them before export, or end the model before them"),
        )

    def _typed(self, result: Any, call: Call) -> Any:
        """The results with a type each; expressions that are none yet are emitted."""
        if isinstance(result, tuple):
            return tuple(self._typed(value, call) for value in result)
        return call.emit(result) if self.builder.is_expr(result) else result

    def _expand(self, function: onnx.FunctionProto, call: Call) -> Any:
        """Walk the body of a function in the place of its call.

        Raises:
            InvalidModel: The function calls itself, or does not compute one of its results.
        """
        key = function.domain, function.name, function.overload
        if key in self._within:
            raise InvalidModel(f"function {call.op}, which calls itself", "functions of others")
        given = attributes(function.attribute_proto, {}, self.weights) | dict(call.attrs)
        scope: dict[str, Value] = {
            name: call.inputs[index] if index < len(call.inputs) else None
            for index, name in enumerate(function.input)
        }
        opsets = {opset.domain or "ai.onnx": opset.version for opset in function.opset_import}
        self._within.append(key)
        self.run(function.node, scope, opsets or self.opsets, given)
        self._within.pop()
        names = function.output[: max(1, call.outputs)]
        if missing := [name for name in names if name not in scope]:
            raise InvalidModel(
                f"function {call.op}, whose result {missing[0]!r} nothing computes",
                "a node in its body for each result",
            )
        results = tuple(scope[name] for name in names)
        return results if len(results) > 1 else results[0]


def _needed(graph: onnx.GraphProto, names: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that outputs need, each behind those that it needs itself.

    Raises:
        InvalidOption: A name that no tensor of the model has.
    """
    made = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    before: dict[int, set[int]] = {}
    rest = [made[name] for name in names if name in made]
    while rest:
        if (i := rest.pop()) not in before:
            before[i] = {made[name] for name in _inputs(graph.node[i]) if name in made}
            rest += before[i]
    order = sorted(before)
    if any(j >= i for i, needed in before.items() for j in needed):
        order = _sorted(before)
    found = [graph.node[i] for i in order]
    known = {name for node in found for name in node.output}
    known |= {value.name for value in (*graph.input, *graph.initializer)}
    known |= {value.values.name for value in graph.sparse_initializer}
    if missing := [name for name in names if name not in known]:
        raise InvalidOption(f"output {missing[0]!r}", "the name of a tensor of the model")
    return found


def _sorted(before: Mapping[int, set[int]]) -> list[int]:
    """Nodes of a model that is not in order.

    Raises:
        InvalidModel: A node needs its own result.
    """
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as err:
        raise InvalidModel("nodes that need each other", "a graph without cycles") from err


def _inputs(node: onnx.NodeProto) -> set[str]:
    """Names that a node takes, its subgraphs included."""
    seen = set(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            seen.update(value.name for value in graph.output)
            seen.update(name for inner in graph.node for name in _inputs(inner))
    return seen


def element_type(value: onnx.ValueInfoProto) -> str:
    """The dtype of a model's input.

    Raises:
        UnsupportedOp: An input that is no tensor.
        UnsupportedDtype: A tensor of another dtype than networks compute with.
    """
    import onnx

    if value.type.WhichOneof("value") not in ("tensor_type", None):
        raise UnsupportedOp(f"input {value.name!r}, which is no tensor", "tensors")
    if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        raise UnsupportedDtype(f"input {value.name!r} of text", "a tensor of numbers")
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    except (KeyError, ValueError, TypeError):
        raise UnsupportedDtype(f"input {value.name!r} without a dtype", "a tensor") from None
    return checked_dtype(dtype, f"input {value.name!r}")
