"""The registry of decoders, and what they share.

A decoder that needs other nodes is a generator: `yield index` gives the decoded object.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from convoy.errors import RelaySyntaxError
from convoy.relay.source import Span

if TYPE_CHECKING:
    from convoy.relay.json_format.reader import Node


Step = Generator[int, Any, Any]
Decoder = Callable[["Node"], Any]  # the object, or a Step that returns it
DECODERS: dict[str, Decoder] = {}

# What TVM 0.6 called the types that lost their prefix or changed their name.
_RENAMED = {
    "relay.Module": "IRModule",
    "StrMap": "Map",
    "Variable": "tir.Var",
    "SizeVar": "tir.SizeVar",
    "Any": "tir.Any",
    "relay.Any": "tir.Any",
    "ffi.String": "runtime.String",
    "ffi.Array": "Array",
    "ffi.Map": "Map",
}
_UNPREFIXED = (  # noqa: SIM905
    "Op GlobalVar TupleType FuncType IncompleteType TypeVar GlobalTypeVar TypeCall TypeData"
    " Constructor RelayRefType TensorType SourceName Span"
).split()


def canonical_key(key: str) -> str:
    """Return a type key as TVM 0.18 spells it."""
    if key in _RENAMED:
        return _RENAMED[key]
    bare = key.removeprefix("relay.")
    if bare in _UNPREFIXED and bare != "TensorType":
        return bare
    return key


def decodes(*keys: str) -> Callable[[Decoder], Decoder]:
    """Register the decoder of type keys."""

    def register(function: Decoder) -> Decoder:
        for key in keys:
            DECODERS[key] = function
        return function

    return register


def expect(value: Any, kind: type | tuple[type, ...], node: Node, field: str) -> Any:
    """Check the type of a decoded field; return it."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds)
        raise RelaySyntaxError(f"{node.key}.{field} is a {type(value).__name__}", f"a {wanted}")
    return value


def expect_all(
    values: Any, kind: type | tuple[type, ...], node: Node, field: str
) -> tuple[Any, ...]:
    """Check a decoded array and the types of its elements; return it."""
    return tuple(expect(v, kind, node, field) for v in expect(values or (), tuple, node, field))


def span_of(node: Node) -> Step:
    """Decode the span of a node, None where it has none."""
    found = yield from node.ref("span")
    return found if isinstance(found, Span) else None
