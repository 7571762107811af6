"""Walk an ONNX graph and emit a Relax function."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from ...errors import ConvoyError, InvalidModel, InvalidOption, UnsupportedDtype, UnsupportedOp
from ...graph.expr import shape_of
from ...ir.names import OUTPUT_NAMES
from . import ops  # noqa: F401  (registers the converters)
from .call import CONVERTERS, Call, Value, checked_dtype
from .fold import fold
from .functions import schema_function
from .shapes import input_shapes
from .weights import Weights, attributes

if TYPE_CHECKING:
    import onnx

#: Nodes that one model may become: a loop that is unrolled stops there.
MOST_NODES = 200_000


def from_onnx(
    model: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
) -> tvm.IRModule:
    """Convert an ONNX model to a Relax module for :func:`convoy.build` and :func:`convoy.place`.

    Inputs and outputs keep their names. All sizes are fixed: what a model leaves open is given.

    Args:
        model: A file, with its external data beside it, or a model that is loaded.
        shapes: Shapes of inputs by name, for those with open axes.
        batch: The size of a first axis that is open.
        outputs: Names of any tensors of the model to end it at, instead of its own outputs.

    Raises:
        InvalidOption: A shape that contradicts the model's, or for an input that it does not have.
        DynamicShape: An open axis without a size; says what to give.
        UnsupportedOp: An operator, or a use of one, that there is no converter for; by name.
        UnsupportedDtype: A tensor of text, complex numbers, float8 or fewer than eight bits.
        InvalidModel: A file that cannot be read, or a model that contradicts itself.
    """
    from .file import load

    folder = None
    if isinstance(model, (str, os.PathLike)):
        folder = Path(model).resolve().parent
        model = load(Path(model))
    return Importer(model, Weights(folder)).module(shapes or {}, batch, outputs)


class Importer:
    """The conversion of one model.

    Attributes:
        builder: Where expressions are emitted.
    """

    def __init__(self, model: onnx.ModelProto, weights: Weights) -> None:
        self.model, self.weights = model, weights
        self.builder = relax.BlockBuilder()
        self.opsets = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
        self._functions = {(f.domain, f.name): f for f in model.functions}
        self._constants: dict[int, tuple[np.ndarray, relax.Expr]] = {}
        self._nodes = 0

    def module(
        self,
        shapes: Mapping[str, Sequence[int]],
        batch: int | None = None,
        outputs: Sequence[str] | None = None,
    ) -> tvm.IRModule:
        """The whole model as a module whose ``main`` takes the inputs in their order."""
        graph = self.model.graph
        names = list(outputs or (value.name for value in graph.output))
        if not names:
            raise InvalidModel("an ONNX model without outputs", "a model")
        nodes = _needed(graph, names)
        known = {tensor.name for tensor in graph.initializer}
        known |= {tensor.values.name for tensor in graph.sparse_initializer}
        inputs = [value for value in graph.input if value.name not in known]
        dtypes = {value.name: _element_type(value) for value in inputs}
        sizes = input_shapes(inputs, shapes, batch)
        scope: dict[str, Value] = {}
        params = []
        for value in inputs:
            ty = relax.TensorType(sizes[value.name], dtypes[value.name])
            params.append(relax.Var(value.name, ty))
            scope[value.name] = params[-1]
        with self.builder.function("main", params):
            with self.builder.dataflow():
                self.enter(graph, scope, nodes)
                found = [self._output(scope, name) for name in names]
                result = found[0] if len(found) == 1 else relax.Tuple(found)
                result = self.builder.emit_output(result)
            self.builder.emit_func_output(result)
        return self.builder.get().with_attr(OUTPUT_NAMES, names)

    def _output(self, scope: Mapping[str, Value], name: str) -> relax.Expr:
        value = scope.get(name)
        if isinstance(value, np.ndarray):
            return self.constant(value)
        if not isinstance(value, relax.Expr):
            kind = "sequence" if isinstance(value, list) else "missing value"
            raise UnsupportedOp(f"an output {name!r} that is a {kind}", "tensors")
        return value

    def constant(self, array: np.ndarray) -> relax.Expr:
        """A Relax constant; the same one for the same array."""
        if not array.size:
            raise UnsupportedOp(f"a tensor of shape {array.shape}", "tensors with elements")
        found = self._constants.get(id(array))
        if found is None:
            dtype = checked_dtype(array.dtype, "a constant")
            # Kept with the array, whose id is not given to another one then.
            constant = relax.const(np.ascontiguousarray(array).reshape(array.shape), dtype)
            found = self._constants[id(array)] = (array, self.builder.normalize(constant))
        return found[1]

    # ---- walking

    def enter(
        self,
        graph: onnx.GraphProto,
        scope: dict[str, Value],
        nodes: Iterable[onnx.NodeProto] | None = None,
    ) -> None:
        """Add the values of a graph (the model's or that of an attribute) to ``scope``."""
        for tensor in graph.initializer:
            scope[tensor.name] = self.weights.array(tensor)
        for tensor in graph.sparse_initializer:
            scope[tensor.values.name] = self.weights.sparse(tensor)
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
            call = Call(self, node.op_type, inputs, attrs, version, used, name, scope)
            result = self.call(call, domain)
            results = result if isinstance(result, tuple) else (result,)
            for name, value in zip(node.output, results, strict=False):
                if name:
                    scope[name] = value
            if missing := [name for name in node.output[len(results) :] if name]:
                raise call.unsupported(f"whose output {missing[0]!r} is used", "its first outputs")

    def call(self, call: Call, domain: str = "") -> Any:
        """The value (a tuple of several) of one operator.

        Raises:
            UnsupportedOp: There is no converter for it.
        """
        if (function := self._functions.get((domain, call.op))) is not None:
            return self._expand(function, call)
        try:
            if domain == "" and (folded := fold(call)) is not None:
                return folded
            found = CONVERTERS.get((domain, call.op))
            if found is not None:
                return self._typed(found(call), call)
            if (body := schema_function(call, domain)) is not None:
                return self._expand(*body)
        except ConvoyError:
            raise
        except Exception as err:  # of a converter, or of TVM's type inference
            text = str(err).strip().splitlines()
            raise InvalidModel(
                f"{call.op} {call.name!r}, which does not convert "
                f"({type(err).__name__}: {text[-1] if text else ''})",
                "inputs and attributes that fit together",
                "CONVOY_TRACEBACK=1 shows where.",
            ) from err
        where = f"{domain}.{call.op}" if domain else call.op
        raise UnsupportedOp(
            f"ONNX operator {where} of opset {call.version} ({call.name!r})",
            "an operator that docs/guides/onnx.md lists",
        )

    def _typed(self, result: Any, call: Call) -> Any:
        """The results with a type each; expressions that are none yet are emitted."""
        if isinstance(result, tuple):
            return tuple(self._typed(value, call) for value in result)
        if isinstance(result, relax.Expr) and not isinstance(result, relax.Var | GenericConst):
            result = call.emit(result)
        if isinstance(result, relax.Expr):
            shape_of(result)
        return result

    def _expand(self, function: onnx.FunctionProto, call: Call) -> Any:
        """Walk the body of a function in the place of its call."""
        given = attributes(function.attribute_proto, {}, self.weights) | dict(call.attrs)
        scope: dict[str, Value] = {
            name: call.inputs[index] if index < len(call.inputs) else None
            for index, name in enumerate(function.input)
        }
        opsets = {opset.domain or "ai.onnx": opset.version for opset in function.opset_import}
        self.run(function.node, scope, opsets or self.opsets, given)
        results = tuple(scope[name] for name in function.output[: max(1, call.outputs)])
        return results if len(results) > 1 else results[0]


def _needed(graph: onnx.GraphProto, names: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that outputs need, in order.

    Raises:
        InvalidOption: A name that no tensor of the model has.
    """
    wanted, found = set(names), []
    for node in reversed(graph.node):
        if wanted.isdisjoint(node.output):
            continue
        found.append(node)
        wanted.update(node.input)
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                wanted.update(_names_seen(inner))
    known = {name for node in found for name in node.output}
    known |= {value.name for value in (*graph.input, *graph.initializer)}
    known |= {value.values.name for value in graph.sparse_initializer}
    if missing := [name for name in names if name not in known]:
        raise InvalidOption(f"output {missing[0]!r}", "the name of a tensor of the model")
    return found[::-1]


def _names_seen(graph: onnx.GraphProto) -> set[str]:
    """Names that the nodes of a subgraph take, those inside of it included."""
    seen = {value.name for value in graph.output}
    for node in graph.node:
        seen.update(node.input)
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                seen |= _names_seen(inner)
    return seen


def _element_type(value: onnx.ValueInfoProto) -> str:
    """The dtype of a model's input.

    Raises:
        UnsupportedOp: An input that is no tensor.
        UnsupportedDtype: A tensor of another dtype than networks compute with.
    """
    import onnx

    if value.type.WhichOneof("value") not in ("tensor_type", None):
        raise UnsupportedOp(f"input {value.name!r}, which is no tensor", "tensors")
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    except (KeyError, ValueError, TypeError):
        raise UnsupportedDtype(f"input {value.name!r} without a dtype", "a tensor") from None
    return checked_dtype(dtype, f"input {value.name!r}")
