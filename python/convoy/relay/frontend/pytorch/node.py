"""The arguments of a TorchScript node, and its place in the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Operands of Python's operators on numbers, by their names in the operators on tensors.
_OPERANDS = {"a": "self", "b": "other"}


def arguments_of(node: Any, inputs: Sequence[Any]) -> tuple[str, str, dict[str, Any]]:
    """Return operator, overload and arguments by name of a node."""
    import torch

    try:
        schema = torch._C.parse_schema(node.schema())
    except RuntimeError:  # a custom operator that was not registered with a schema
        return node.kind(), "", {str(i): v for i, v in enumerate(inputs)}
    names = [a.name for a in schema.arguments]
    if names[:1] == ["a"]:
        names = [_OPERANDS.get(name, name) for name in names]
    if len(names) != len(inputs):
        names = [str(i) for i in range(len(inputs))]
    return node.kind(), schema.overload_name, dict(zip(names, inputs, strict=True))


def quantizes(value: Any) -> bool:
    """Return whether a value of a graph is only a scale or a zero point."""
    kinds = [use.user.kind() for use in value.uses()]
    return all(k.startswith("quantized::") or k == "aten::quantize_per_tensor" for k in kinds)


def where(node: Any) -> str:
    """Return where in the user's source a node comes from."""
    lines = [s.strip() for s in node.sourceRange().splitlines() if ".py" in s]
    return f" ({lines[0].lstrip('# ')})" if lines else ""
