"""What a program computes from its parameters and from numbers alone, as PyTorch computes it."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.utils import _pytree

#: Elements of a result that becomes a constant, at most; parameters stay as they are.
MOST_ELEMENTS = 1 << 22
_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Constants:
    """Values of nodes that depend on no element of an input: position biases, masks, normalized
    weights; also tensors without elements, which TVM's importer does not know, and reductions of
    them, which TVM divides by zero or gives other values."""

    def __init__(self, program: ExportedProgram) -> None:
        held = {**program.constants, **program.state_dict}
        targets = {
            spec.arg.name: spec.target
            for spec in program.graph_signature.input_specs
            if spec.kind in _HELD and isinstance(held.get(spec.target), torch.Tensor)
        }
        self._values: dict[Node, Any] = {}
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in targets:
                self._values[node] = held[targets[node.name]].detach()
            elif _is_empty(declared := node.meta.get("val")):
                self._values[node] = torch.empty(declared.shape, dtype=declared.dtype)
            elif node.op == "call_function":
                self._compute(node)

    def __contains__(self, node: Node) -> bool:
        """Whether a node needs no converter."""
        return node in self._values

    def value(self, node: Node) -> torch.Tensor | None:
        """The constant that a node is; None for what depends on an input, for random numbers, for
        views of parameters, which move no data, and for large results."""
        result = self._values.get(node)
        if not isinstance(result, torch.Tensor) or result.is_sparse:
            return None
        if not result.numel():
            return result
        before = [self._values[one] for one in node.all_input_nodes]
        is_view = any(share_memory(result, t) for t in before if isinstance(t, torch.Tensor))
        return None if is_view else result.contiguous()

    def _compute(self, node: Node) -> None:
        if (
            not all(one in self._values for one in node.all_input_nodes)
            or _is_large(node)
            or is_random(node.target)
        ):
            return
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda one: self._values[one]
        )
        with torch.no_grad():
            self._values[node] = _computed(node, args, kwargs)


def _computed(node: Node, args: Any, kwargs: Any) -> Any:
    """Results of an operator. Those in 16 bit are computed in float32 and rounded, as on a GPU:
    PyTorch's operators for the CPU round sums and statistics on the way."""
    operator, declared = node.target, node.meta.get("val")
    leaves = _pytree.tree_leaves((args, kwargs, declared))
    is_view = getattr(operator, "is_view", True)
    if is_view or declared is None or not any(map(_is_narrow, leaves)):
        return operator(*args, **kwargs)
    wide = _pytree.tree_map(lambda x: x.float() if _is_narrow(x) else x, (args, kwargs))
    results, spec = _pytree.tree_flatten(operator(*wide[0], **wide[1]))
    expected = _pytree.tree_leaves(declared)
    rounded = [
        x.to(like.dtype) if isinstance(like, torch.Tensor) and isinstance(x, torch.Tensor) else x
        for x, like in zip(results, expected, strict=True)
    ]
    return _pytree.tree_unflatten(rounded, spec)


def _is_narrow(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)


def is_random(operator: object) -> bool:
    """Whether an operator draws random numbers. Recurrent layers do so for their dropout alone,
    with which they are not converted as a whole."""
    tagged = torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())
    return tagged and operator not in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input)


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are views of the same memory."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _is_empty(declared: object) -> bool:
    """Whether a tensor has no elements; sizes that are not known are not zero."""
    sizes = declared.shape if isinstance(declared, torch.Tensor) else ()
    return any(isinstance(size, int) and not size for size in sizes)


def _is_large(node: Node) -> bool:
    results = _pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(t, torch.Tensor) and t.numel() > MOST_ELEMENTS for t in results)
