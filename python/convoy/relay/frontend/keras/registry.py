"""The registry of converters of Keras layers, and the tensors between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Expr, Var
from convoy.relay.builder import var
from convoy.relay.frontend.common import infer_shape, rank, transpose

_F = TypeVar("_F", bound=Callable[..., Any])
_CONVERTERS: dict[str, Callable[[Layer], Any]] = {}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a model, whose channels are its last axis for Keras.

    Attributes:
        expr: The expression.
        first: Whether the expression has the channels behind the batch: (n, c, ...).
    """

    expr: Expr
    first: bool = False

    def last(self) -> Expr:
        """Return the expression with channels last."""
        ndim = rank(self.expr)
        return transpose(self.expr, (0, *range(2, ndim), 1)) if self.first else self.expr

    def channels_first(self) -> Expr:
        """Return the expression with channels behind the batch."""
        ndim = rank(self.expr)
        return self.expr if self.first else transpose(self.expr, (0, ndim - 1, *range(1, ndim - 1)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape with channels last."""
        shape = infer_shape(self.expr)
        return (shape[0], *shape[2:], shape[1]) if self.first else shape

    def like(self, expr: Expr) -> Tensor:
        """Return a tensor of the same order of axes."""
        return Tensor(expr, self.first)


def convert(*names: str) -> Callable[[_F], _F]:
    """Register the converter of classes of layers."""

    def register(function: _F) -> _F:
        for name in names:
            _CONVERTERS[name] = function
        return function

    return register


def converter_of(name: str) -> Callable[[Layer], Any] | None:
    """Return the converter of a class of layers, None where there is none."""
    return _CONVERTERS.get(name)


def converted_layers() -> list[str]:
    """Return the names of all classes of layers that have a converter."""
    return sorted(_CONVERTERS)


class Layer:
    """A layer while it is converted.

    Attributes:
        layer: The layer.
        name: Its class.
        config: What its `get_config()` returns.
        inputs: Its input tensors.
        call: Arguments of its call by name.
        params: The arrays of all parameters so far, by name.
    """

    def __init__(
        self,
        layer: Any,
        inputs: Sequence[Tensor],
        params: dict[str, np.ndarray],
        variables: dict[str, Var],
        call: dict[str, Any] | None = None,
    ) -> None:
        self.layer, self.inputs, self.params = layer, list(inputs), params
        self.name, self.config = type(layer).__name__, layer.get_config()
        self.call = call or {}
        self._variables = variables
        self.weights = [np.asarray(w) for w in layer.get_weights()]

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.inputs[0]

    def error(self, got: str, expected: str = "", remedy: str = "") -> UnsupportedOp:
        """Make the error for a layer that cannot be converted."""
        return UnsupportedOp(f"Keras {self.name} ({self.layer.name}): {got}", expected, remedy)

    def param(self, name: str, value: np.ndarray) -> Var:
        """Return the variable of an array, which becomes a parameter."""
        full = f"{self.layer.name}.{name}"
        if full not in self._variables:
            self.params[full] = np.ascontiguousarray(value)
            self._variables[full] = var(full, shape=value.shape, dtype=value.dtype.name)
        return self._variables[full]

    def is_last(self) -> bool:
        """Check that the layer has channels last.

        Raises:
            UnsupportedOp: Channels first.
        """
        if self.config.get("data_format", "channels_last") == "channels_first":
            raise self.error("data_format='channels_first'", "'channels_last'")
        return True
