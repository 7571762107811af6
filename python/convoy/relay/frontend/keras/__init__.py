"""`relay.frontend.from_keras`: Keras 3 and tf.keras models as Relay.

The graph of layers is read from the model, each layer from its config and its weights; a family
module registers the converters of its classes of layers (`@convert("Dense")`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convoy.errors import InvalidModel, InvalidOption, UnsupportedOp
from convoy.relay.analysis import free_vars
from convoy.relay.ast import Function, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import tuple_of
from convoy.relay.frontend.keras import activation, convolution, recurrent, shape
from convoy.relay.frontend.keras.registry import Layer, Tensor, converted_layers, converter_of
from convoy.relay.frontend.spans import mark
from convoy.relay.infer import infer_module
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule

__all__ = ["activation", "converted_layers", "convolution", "from_keras", "recurrent", "shape"]

_FIRST = ("NCHW", "NCDHW")


def from_keras(
    model: Any, shape: Mapping[str, Sequence[int]] | None = None, layout: str = "NCHW"
) -> tuple[IRModule, dict[str, Any]]:
    """Convert a Keras model to Relay.

    Args:
        model: A Sequential or functional model, of Keras 3 or of tf.keras, with channels last.
        shape: Shapes of inputs by the names of their layers, in `layout`; the model's own, with a
            batch of 1, where one is left out.
        layout: The order of axes of images that `main` takes and returns: "NCHW" or "NHWC"
            (for volumes "NCDHW" or "NDHWC").

    Returns:
        The module, whose `main` takes the inputs and then the parameters, and the parameters by
        name.

    Raises:
        InvalidModel: Something other than a model, or one that was not built.
        UnsupportedOp: A layer that has no converter; the message lists those that have.
        InvalidOption: Another layout.
    """
    if layout not in (*_FIRST, "NHWC", "NDHWC", "NWC"):
        raise InvalidOption(f"layout='{layout}'", "NCHW, NHWC, NCDHW or NDHWC")
    if not hasattr(model, "layers") or not hasattr(model, "get_config"):
        raise InvalidModel(f"a {type(model).__name__}", "a Keras model")
    walk = _Walk(dict(shape or {}), layout in _FIRST)
    outputs = walk.model(model, None)
    body = tuple_of([t.channels_first() if walk.channels_first and _is_image(t) else t.last()
                     for t in outputs])  # fmt: skip
    used = [v for v in free_vars(body) if v.name_hint in walk.params]
    names = {v.name_hint for v in used}
    mod = infer_module(IRModule.from_expr(Function([*walk.inputs, *used], body)))
    return mod, {n: tvm.runtime.tensor(a) for n, a in walk.params.items() if n in names}


def _is_image(tensor: Tensor) -> bool:
    return tensor.first and len(tensor.shape) in (4, 5)


class _Walk:
    """The walk over the graph of layers."""

    def __init__(self, shapes: dict[str, Sequence[int]], channels_first: bool) -> None:
        self.shapes, self.channels_first = shapes, channels_first
        self.inputs: list[Var] = []
        self.params: dict[str, np.ndarray] = {}
        self.variables: dict[str, Var] = {}

    def model(self, model: Any, given: Sequence[Tensor] | None) -> list[Tensor]:
        """Convert a model for given inputs, or for new variables."""
        if not getattr(model, "inputs", None):
            raise InvalidModel(
                f"model '{model.name}' without inputs", "one that was built",
                "Call it once, or build it with an input shape",
            )  # fmt: skip
        if given is None:
            given = [self._input(t) for t in model.inputs]
        known = {id(t): v for t, v in zip(model.inputs, given, strict=True)}
        return [self._tensor(t, known) for t in model.outputs]

    def _input(self, tensor: Any) -> Tensor:
        layer = tensor._keras_history[0]
        name = layer.name
        own = [1 if d is None and i == 0 else d for i, d in enumerate(tensor.shape)]
        image = self.channels_first and len(own) in (4, 5)
        if name in self.shapes:
            shape = list(self.shapes[name])
        else:
            if any(d is None for d in own):
                raise InvalidModel(
                    f"input '{name}' of shape {tuple(own)}", "sizes", "Pass shape={name: (...)}"
                )
            shape = [own[0], own[-1], *own[1:-1]] if image else own
        sizes = tuple(int(d) for d in shape)
        self.inputs.append(var(name, shape=sizes, dtype=_dtype_of(tensor)))
        return Tensor(self.inputs[-1], image)

    def _tensor(self, wanted: Any, known: dict[int, Tensor]) -> Tensor:
        """Convert a tensor and all that it needs, in an explicit stack: models are deep."""
        stack = [wanted]
        while stack:
            tensor = stack[-1]
            if id(tensor) in known:
                stack.pop()
                continue
            layer, node_index, _ = tensor._keras_history
            node = layer._inbound_nodes[node_index]
            inputs = _inputs_of(node)
            if missing := [t for t in inputs if id(t) not in known]:
                stack.extend(missing)
                continue
            if hasattr(layer, "get_weights"):
                results = self._layer(layer, [known[id(t)] for t in inputs], _keywords(node))
            else:
                operands = [known.get(id(value), value) for value in node.arguments.args]
                results = [shape.operation(type(layer).__name__, operands, _dtype_of(tensor))]
            outputs = _outputs_of(node)
            known.update((id(t), r) for t, r in zip(outputs, results, strict=False))
        return known[id(wanted)]

    def _layer(self, layer: Any, inputs: list[Tensor], keywords: dict[str, Any]) -> list[Tensor]:
        if hasattr(layer, "layers") and hasattr(layer, "outputs"):
            return self.model(layer, inputs)
        name = type(layer).__name__
        converter = converter_of(name)
        if converter is None:
            raise UnsupportedOp(
                f"Keras layer without a converter: {name} ({layer.name})",
                f"one of {', '.join(converted_layers())}",
                "Export the model to ONNX (model.export) and use from_onnx",
            )
        result = converter(Layer(layer, inputs, self.params, self.variables, keywords))
        results = result if isinstance(result, list) else [result]
        mark([tensor.expr for tensor in results], layer.name)
        return results


def _dtype_of(tensor: Any) -> str:
    return getattr(tensor.dtype, "name", str(tensor.dtype))


def _inputs_of(node: Any) -> list[Any]:
    found = getattr(node, "input_tensors", None)
    if not isinstance(found, list):
        found = node.keras_inputs  # tf.keras 2
    return list(found)


def _outputs_of(node: Any) -> list[Any]:
    found = getattr(node, "output_tensors", None)
    if found is None:
        found = node.outputs
    return list(found) if isinstance(found, list | tuple) else [found]


def _keywords(node: Any) -> dict[str, Any]:
    arguments = getattr(node, "arguments", None)
    if arguments is not None:
        return dict(arguments.kwargs)
    return dict(getattr(node, "call_kwargs", None) or {})
