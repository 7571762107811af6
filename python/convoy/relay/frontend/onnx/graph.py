"""The walk over an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from convoy.errors import ConvoyError, InvalidModel, UnsupportedOp
from convoy.relay.ast import Expr, TupleWrapper, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import const
from convoy.relay.frontend.onnx.fold import fold
from convoy.relay.frontend.onnx.registry import Node, converter_of
from convoy.relay.types import Any as AnyDim

_DOMAINS = {"ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml"}


class Importer:
    """The conversion of one model.

    Attributes:
        opsets: Versions by domain.
        shapes: Shapes of inputs by name, in place of those of the model.
        dtypes: Dtypes of inputs by name, in place of those of the model.
        missing: The nodes of the main graph that have neither a converter nor a definition by
            other operators; they may still be constant.
        freeze: Whether initializers become constants, or else variables.
        inputs: The variables, by name, in order.
        params: The arrays of those that are initializers.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        shapes: Mapping[str, Sequence[Any]],
        dtypes: Mapping[str, str],
        freeze: bool,
    ) -> None:
        self.opsets, self.shapes, self.dtypes, self.freeze = opsets, shapes, dtypes, freeze
        self.missing: list[Any] = []
        self.inputs: dict[str, Var] = {}
        self.params: dict[str, np.ndarray] = {}

    def graph(self, graph: Any) -> list[Any]:
        """Convert the main graph; return its outputs."""
        values: dict[str, Any] = {}
        for name, array in initializers(graph):
            if self.freeze:
                values[name] = const(array)
            else:
                self.params[name] = array
                values[name] = var(name, shape=array.shape, dtype=array.dtype.name)
        for info in graph.input:
            if info.name not in values:
                values[info.name] = self.inputs[info.name] = self._input(info)
        self.inputs.update({name: values[name] for name in self.params})
        self.missing = [n for n in graph.node if not self._knows(n)]
        return self.body(graph, values)

    def _knows(self, node: Any) -> bool:
        from onnx import defs

        domain = _DOMAINS.get(node.domain, node.domain)
        opset = self.opsets.get(domain, 1)
        if converter_of(domain, node.op_type, opset) is not None:
            return True
        try:
            schema = defs.get_schema(node.op_type, opset, domain)
        except defs.SchemaError:
            return False
        return bool(schema.has_function or schema.has_context_dependent_function)

    def _input(self, info: Any) -> Var:
        from onnx import helper

        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value")
            raise UnsupportedOp(f"input '{info.name}' of {kind}", "a tensor")
        tensor = info.type.tensor_type
        shape = self.shapes.get(info.name)
        if shape is None:
            if not tensor.HasField("shape"):
                raise InvalidModel(
                    f"input '{info.name}' without a shape", "one", "Pass shape={name: (...)}"
                )
            shape = [d.dim_value if d.dim_value > 0 else AnyDim() for d in tensor.shape.dim]
            shape = [0 if p.HasField("dim_value") and p.dim_value == 0 else d
                     for p, d in zip(tensor.shape.dim, shape, strict=True)]  # fmt: skip
        dtype = self.dtypes.get(info.name)
        if dtype is None:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        return var(info.name, shape=tuple(shape), dtype=dtype)

    def body(self, graph: Any, values: dict[str, Any]) -> list[Any]:
        """Convert the nodes of a graph whose inputs are in `values`; return its outputs."""
        for node in graph.node:
            inputs = [self._lookup(values, name, node) for name in node.input]
            self._store(node, values, self.node(node, inputs, values))
        return [self._lookup(values, info.name, graph) for info in graph.output]

    def _lookup(self, values: Mapping[str, Any], name: str, user: Any) -> Any:
        if not name:
            return None
        if name not in values:
            raise InvalidModel(f"'{name}', which {user.name or 'a node'} uses and nothing computes")
        return values[name]

    def _store(self, node: Any, values: dict[str, Any], results: Sequence[Any]) -> None:
        for place, name in enumerate(node.output):
            if not name:
                continue
            if place >= len(results) or results[place] is None:
                raise UnsupportedOp(
                    f"output {place} of ONNX {node.op_type} ({node.name or name})",
                    f"the first {len(results)} only",
                )
            values[name] = results[place]

    def node(self, node: Any, inputs: list[Any], values: Mapping[str, Any]) -> Sequence[Any]:
        """Convert a node: as a constant, by its converter, or by its definition as a function.

        Raises:
            UnsupportedOp: None of these is possible.
        """
        domain = _DOMAINS.get(node.domain, node.domain)
        opset = self.opsets.get(domain, 1)
        folded = fold(node, inputs, self.opsets)
        if folded is not None:
            return folded
        found = converter_of(domain, node.op_type, opset)
        label = node.name or next(iter(node.output), "")
        if found is None:
            body = function_body(node, inputs, domain, opset)
            if body is None:
                raise unsupported([node, *self.missing])
            return self._expand(body, node, inputs)

        def subgraph(graph: Any, given: Sequence[Any]) -> list[Any]:
            inner = {**values, **{name: const(array) for name, array in initializers(graph)}}
            inner.update({i.name: g for i, g in zip(graph.input, given, strict=True)})
            return self.body(graph, inner)

        attrs = {a.name: _attribute(a) for a in node.attribute}
        wrapped = Node(node.op_type, label, opset, attrs, inputs, node.output, subgraph)
        try:
            results = found(wrapped)
        except (UnsupportedOp, InvalidModel):
            raise
        except ConvoyError as error:
            raise type(error)(
                f"ONNX {node.op_type} ({label}): {error.got}", error.expected, error.remedy
            ) from error
        if isinstance(results, (Expr, Listed)):
            return [results]
        return list(results) if isinstance(results, TupleWrapper) else results

    def _expand(self, body: Any, node: Any, inputs: Sequence[Any]) -> list[Any]:
        """Convert the body of a function in place of its call."""
        values = dict.fromkeys(body.input)
        values.update(zip(body.input, inputs, strict=False))
        given = {a.name: a for a in body.attribute_proto}
        given.update(_defaults(node, self.opsets))
        given.update((a.name, a) for a in node.attribute)
        for inner in body.node:
            bound = _bind(inner, given)
            self._store(
                bound,
                values,
                self.node(bound, [values[n] if n else None for n in bound.input], values),
            )
        return [values.get(name) for name in body.output]


class Listed(list[Any]):
    """The elements of an ONNX sequence."""


def initializers(graph: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the initializers of a graph."""
    from onnx import numpy_helper

    for tensor in graph.initializer:
        yield tensor.name, numpy_helper.to_array(tensor)
    for sparse in graph.sparse_initializer:
        yield sparse.values.name, dense_of(sparse)


def dense_of(sparse: Any) -> np.ndarray:
    """Make the dense array of a SparseTensorProto."""
    from onnx import numpy_helper

    values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        dense.reshape(-1)[places] = values
    else:
        dense[tuple(places.T)] = values
    return dense


def _attribute(attribute: Any) -> Any:
    """Convert an attribute to Python."""
    from onnx import AttributeProto, helper, numpy_helper

    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(attribute.t)
    if attribute.type == AttributeProto.SPARSE_TENSOR:
        return dense_of(attribute.sparse_tensor)
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [v.decode("utf-8", "replace") for v in value]
    return value


def _bind(node: Any, given: Mapping[str, Any]) -> Any:
    """Replace references to attributes of a function by those of its call."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    from onnx import NodeProto

    bound = NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            bound.attribute.append(attribute)
        elif attribute.ref_attr_name in given:
            copy = bound.attribute.add()
            copy.CopyFrom(given[attribute.ref_attr_name])
            copy.name = attribute.name
    return bound


def _defaults(node: Any, opsets: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that ONNX gives an operator where a node does not."""
    from onnx import AttributeProto, defs

    domain = _DOMAINS.get(node.domain, node.domain)
    schema = defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type != AttributeProto.UNDEFINED:
            yield name, attribute.default_value


def function_body(node: Any, inputs: Sequence[Any], domain: str, opset: int) -> Any:
    """Return ONNX's own definition of an operator in terms of others, None without one."""
    from onnx import FunctionProto, defs, helper

    from convoy.relay.frontend.common import dims, tensor_type

    try:
        schema = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = []
    for value in inputs:
        if value is None:
            types.append(b"")
            continue
        shape = [d if isinstance(d, int) else None for d in dims(value)]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(tensor_type(value).dtype))
        types.append(helper.make_tensor_type_proto(element, shape).SerializeToString())
    best = max(v for v in schema.context_dependent_function_opset_versions)
    fitting = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    text = schema.get_context_dependent_function_with_opset_version(
        max(fitting) if fitting else best, node.SerializeToString(), types
    )
    if not text:
        return None
    body = FunctionProto()
    body.ParseFromString(text)
    return body


def unsupported(nodes: Sequence[Any]) -> UnsupportedOp:
    """Make the error for operators that have no converter."""
    names = sorted({f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in nodes})
    return UnsupportedOp(
        f"ONNX operators without a converter: {', '.join(names)}",
        remedy="Replace them before export, or run that part of the network elsewhere",
    )
