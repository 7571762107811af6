"""The registry of ONNX converters, and what a converter is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend import common

# Makes the outputs of a node: one expression, a list of them, or a list for a sequence's elements
# wrapped in `Sequence_`.
Converter = Callable[["Node"], Any]
_F = TypeVar("_F", bound=Callable[..., Any])

# Converters by operator and by the opset that they are valid from.
_CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}


def convert(*names: str, since: int = 1, domain: str = "") -> Callable[[_F], _F]:
    """Register the converter of operators.

    Args:
        *names: The operators.
        since: The first opset that it is valid for.
        domain: "" for ONNX's own operators.
    """

    def register(function: _F) -> _F:
        for name in names:
            _CONVERTERS.setdefault((domain, name), {})[since] = function
        return function

    return register


def converter_of(domain: str, name: str, opset: int) -> Converter | None:
    """Return the converter of an operator at an opset, None where there is none."""
    versions = _CONVERTERS.get((domain, name), {})
    valid = [since for since in versions if since <= opset]
    return versions[max(valid)] if valid else None


def converted_ops() -> list[str]:
    """Return the names of all operators that have a converter."""
    return sorted(name if not domain else f"{domain}.{name}" for domain, name in _CONVERTERS)


class Node:
    """A node of an ONNX graph while it is converted.

    Attributes:
        name: Its operator.
        label: Its own name, for errors.
        opset: The version of its operator's domain.
        attrs: Its attributes; text is str, tensors are arrays, graphs are GraphProto.
        inputs: Its inputs: expressions, None for one that is left out, a list for a sequence.
        outputs: The names of its outputs, "" for one that nobody wants.
        subgraph: Converts a graph of an attribute with the values of its inputs; names of the
            outer graph are known to it.
    """

    def __init__(
        self,
        name: str,
        label: str,
        opset: int,
        attrs: dict[str, Any],
        inputs: Sequence[Any],
        outputs: Sequence[str],
        subgraph: Callable[[Any, Sequence[Any]], list[Any]],
    ) -> None:
        self.name, self.label, self.opset = name, label, opset
        self.attrs, self.inputs, self.outputs = attrs, list(inputs), list(outputs)
        self.subgraph = subgraph

    def error(self, got: str, expected: str = "", remedy: str = "") -> UnsupportedOp:
        """Make the error for a node that cannot be converted."""
        return UnsupportedOp(f"ONNX {self.name} ({self.label}): {got}", expected, remedy)

    def __getitem__(self, index: int) -> Expr:
        """Return an input, which must be there."""
        found = self.get(index)
        if found is None:
            raise self.error(f"no input {index}")
        return found

    def get(self, index: int) -> Any:
        """Return an input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attrs.get(name, default)

    def wants(self, index: int) -> bool:
        """Whether an output is used."""
        return index < len(self.outputs) and self.outputs[index] != ""

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an input, all of its sizes known."""
        return common.infer_shape(self[index])

    def rank(self, index: int = 0) -> int:
        """Return the number of dimensions of an input."""
        return common.rank(self[index])

    def dtype(self, index: int = 0) -> str:
        """Return the dtype of an input."""
        return common.dtype_of(self[index])

    def axis(self, axis: int, ndim: int | None = None) -> int:
        """Count an axis of the first input from the front.

        Raises:
            UnsupportedOp: An axis that it does not have.
        """
        ndim = self.rank() if ndim is None else ndim
        if not -ndim <= axis < max(ndim, 1):
            raise self.error(f"axis {axis} of a tensor of {ndim} dimensions")
        return axis % ndim if ndim else 0

    def value(self, index: int) -> np.ndarray:
        """Return the array of an input that must be a constant.

        Raises:
            UnsupportedOp: An input that is computed.
        """
        found = common.value_of(self[index])
        if found is None:
            raise self.error(
                f"input {index} is computed at run time",
                "a constant",
                "Make it an initializer, with freeze_params=True, or give all inputs their shapes",
            )
        return found

    def ints(self, index: int) -> list[int]:
        """Return the numbers of an input that must be a constant."""
        return [int(v) for v in self.value(index).reshape(-1)]

    def ints_of(self, name: str, index: int) -> list[int] | None:
        """Return numbers that older opsets have as an attribute and newer ones as an input."""
        if name in self.attrs:
            return [int(v) for v in np.atleast_1d(self.attrs[name])]
        return None if self.get(index) is None else self.ints(index)

    def number(self, index: int, default: float) -> float:
        """Return the number of an optional input that must be a constant."""
        return default if self.get(index) is None else self.value(index).reshape(-1)[0].item()
