"""The backend of ``torch.compile(module, backend="convoy")``.

Dynamo hands over one subgraph after another. Each is compiled at its first call, for the shapes of
that call, and runs eagerly where that cannot be: the reason is logged once and kept in
:func:`subgraphs`.
"""

from __future__ import annotations

import copy
import gc
import logging
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import ConvoyError, InvalidOption
from .importer import precision_of
from .module import TorchModule, check_options
from .plain_tensors import is_traced

_log = logging.getLogger("convoy")
#: Shapes that one subgraph is compiled for; others run eagerly.
SHAPES = 8
#: What the names of operators that multiply matrices contain.
_HEAVY = ("conv", "linear", "matmul", "mm", "attention", "einsum", "encoder_layer")
_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
_made: weakref.WeakSet[Subgraph] = weakref.WeakSet()


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **_: Any,
) -> Subgraph:
    """Take over a subgraph of ``torch.compile``, whose ``options`` are :func:`convoy.build`'s."""
    return Subgraph(graph, example_inputs, options or {})


def subgraphs() -> list[Subgraph]:
    """The subgraphs that are alive, oldest first: what they hold, and why one runs eagerly."""
    return sorted(_made, key=lambda subgraph: subgraph.number)


class Subgraph:
    """A part of a program between two graph breaks.

    Attributes:
        number: Counts the subgraphs of the process.
        operators: How many operators it has.
        heavy: How many of these are convolutions and matrix products.
        reason: Why it ran eagerly the last time; empty where it was compiled.
    """

    _count = 0

    def __init__(
        self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        self.graph, self.options, self.reason = graph, dict(options), ""
        self.number = Subgraph._count = Subgraph._count + 1
        graphs = [m.graph for m in graph.modules() if isinstance(m, torch.fx.GraphModule)]
        calls = [n for one in graphs for n in one.nodes if n.op.startswith("call_")]
        self.operators, self.heavy = len(calls), sum(map(_is_heavy, calls))
        placeholders = graph.graph.find_nodes(op="placeholder")
        # Dynamo makes another graph where the mode or arguments begin or cease to record.
        self._records = any(map(_records, graph.graph.output_node().all_input_nodes))
        self._numbers = {i for i, node in enumerate(placeholders) if _is_number(node)}
        for i in self._numbers:
            _take_number(placeholders[i])
        graph.recompile()
        weights = [_is_weight(node) for node in placeholders]
        self._weights = [i for i, is_weight in enumerate(weights) if is_weight]
        self._inputs = [i for i, is_weight in enumerate(weights) if not is_weight]
        self._names = [placeholders[i].name for i in self._weights]
        # Sizes are arguments of their own where Dynamo has made shapes symbolic.
        symbolic = any(not isinstance(value, torch.Tensor) for value in example_inputs)
        self._symbolic = symbolic or bool(self._numbers)
        self._compiled: dict[Any, _Compiled | None] = {}
        self._reported: set[str] = set()
        _made.add(self)

    def __call__(self, *args: Any) -> Any:
        """Run on all placeholders of the graph: weights, inputs, sizes and numbers."""
        if self._numbers:
            args = tuple(arg.item() if i in self._numbers else arg for i, arg in enumerate(args))
        if self._records:
            return self._eager(args, "gradients are recorded; torch.no_grad() turns that off")
        if is_traced():
            return self._eager(args, "in a trace, or in forward-mode differentiation")
        inputs = [args[i] for i in self._inputs]
        key = tuple(map(_size, inputs)) if self._symbolic else None
        compiled = self._compiled.get(key)
        if compiled is None:
            if key in self._compiled:
                return self.graph(*args)
            return self._first(key, args, inputs)
        weights = [args[i] for i in self._weights]
        if not compiled.holds(weights):
            return self._first(key, args, inputs)
        return compiled(inputs)

    def _first(self, key: Any, args: Sequence[Any], inputs: Sequence[Any]) -> Any:
        if not self.heavy:
            return self._eager(args, "no convolution or matrix product", key)
        if len(self._compiled) >= SHAPES and key not in self._compiled:
            return self._eager(args, f"more than {SHAPES} shapes")
        check_options(self.options)  # a mistake must not hide as an eager run
        try:
            compiled = _Compiled(self, [args[i] for i in self._weights], inputs)
        except ConvoyError as err:
            return self._eager(args, str(err), key)
        except Exception as err:  # of TVM, which must not end a program that runs without it
            return self._eager(args, f"{type(err).__name__}: {err}", key)
        self._compiled[key] = compiled
        self.reason = ""
        return compiled(inputs)

    def _eager(self, args: Sequence[Any], reason: str, key: Any = ()) -> Any:
        """Run as PyTorch does, for the reason given; with a key from now on."""
        self.reason = reason
        if reason not in self._reported:
            self._reported.add(reason)
            # A part without heavy operators is nothing that a user should do something about.
            level = logging.WARNING if self.heavy else logging.INFO
            _log.log(level, "subgraph %d of %d operators runs eagerly: %s",
                     self.number, self.operators, reason)  # fmt: skip
        if key != ():
            self._compiled[key] = None
        return self.graph(*args)

    def __str__(self) -> str:
        how = f"eager: {self.reason}" if self.reason else "compiled"
        return f"subgraph {self.number}, {self.operators} operators ({self.heavy} heavy), {how}"


class _Compiled:
    """A subgraph compiled for one set of shapes and for weights as they were."""

    def __init__(
        self, subgraph: Subgraph, weights: Sequence[torch.Tensor], inputs: Sequence[Any]
    ) -> None:
        if any(weight.is_inference() for weight in weights):
            raise InvalidOption(
                "weights that were made under torch.inference_mode()",
                "weights whose changes can be noticed",
                "Make the module outside of it, or under torch.no_grad().",
            )
        self._weights, self._counters = list(weights), _counters(weights)
        self._states = _states(self._weights), _states(self._counters)
        module, options = _Bound(subgraph, weights), dict(subgraph.options)
        precision = options.pop("precision", None) or _precision(weights, inputs)
        self._module = TorchModule(module, tuple(inputs), {}, (), precision, options, subgraph=True)

    def holds(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the weights that were compiled, and nobody has written to them."""
        same = all(map(operator.is_, weights, self._weights))
        return same and (_states(weights), _states(self._counters)) == self._states

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self._module(*inputs)


def _states(weights: Sequence[torch.Tensor]) -> tuple[list[int], list[int]]:
    """What changes when a weight is written to, or gets other memory (``weight.data = ...``). Of
    hundreds of weights at each call."""
    return [w._version for w in weights], [w.data_ptr() for w in weights]


def _counters(weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """How many batches the batch norms among the holders of these buffers have seen. PyTorch counts
    no version of statistics that a batch norm in training writes to, but one of its counter."""
    buffers = [one for one in weights if not isinstance(one, torch.nn.Parameter)]
    holders = [one for one in gc.get_referrers(*buffers) if isinstance(one, dict)]
    counters = [holder.get("num_batches_tracked") for holder in holders]
    return [one for one in counters if isinstance(one, torch.Tensor)]


def _precision(weights: Sequence[torch.Tensor], inputs: Sequence[Any]) -> str:
    """That of the parameters, or of the inputs."""
    parameters = [one for one in weights if isinstance(one, torch.nn.Parameter)]
    tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
    return precision_of(parameters, tensors, widest=True)


class _Bound(torch.nn.Module):
    """A graph as a module of its inputs alone; its weights are parameters."""

    def __init__(self, subgraph: Subgraph, weights: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.graph = _without_checkpoints(subgraph.graph)
        self._at = dict(zip(subgraph._weights, range(len(weights)), strict=True))
        self._count = len(weights) + len(subgraph._inputs)
        self._names = subgraph._names
        for name, weight in zip(self._names, weights, strict=True):
            self.register_buffer(name, weight.detach())

    def forward(self, *inputs: Any) -> Any:
        rest = iter(inputs)
        at = self._at
        args = [
            self._buffers[self._names[at[i]]] if i in at else next(rest) for i in range(self._count)
        ]
        return self.graph(*args)


def _without_checkpoints(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with what ``torch.utils.checkpoint`` calls in place: nothing is kept for a backward
    pass here."""
    found = graph.graph.find_nodes(op="call_function", target=_CHECKPOINT)
    if not found:
        return graph
    graph = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for node in graph.graph.find_nodes(op="call_function", target=_CHECKPOINT):
        body, *args = node.args
        node.op, node.target, node.args, node.kwargs = "call_module", body.target, (*args,), {}
    graph.recompile()
    return graph


def _is_weight(node: torch.fx.Node) -> bool:
    """Whether a placeholder is a parameter or buffer of a module."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})


def _records(result: torch.fx.Node) -> bool:
    """Whether a result of a graph has a gradient, in the mode that the graph was traced in."""
    value = result.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_number(node: torch.fx.Node) -> bool:
    """Whether a placeholder is a number that Dynamo keeps in a tensor, to read it in the graph."""
    value = node.meta.get("example_value")
    scalar = isinstance(value, torch.Tensor) and value.dtype == torch.float64 and not value.dim()
    return scalar and all(user.target == "item" for user in node.users)


def _take_number(node: torch.fx.Node) -> None:
    """Have a placeholder be given the number."""
    for read in list(node.users):
        read.replace_all_uses_with(node)
        node.graph.erase_node(read)


def _size(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else value


def _is_heavy(node: torch.fx.Node) -> bool:
    name: str | Callable[..., Any] = node.target
    text = (name if isinstance(name, str) else getattr(name, "__name__", "")).lower()
    return any(word in text for word in _HEAVY)


# The entry point of an installed package registers it at the first use of the name.
if "convoy" not in torch._dynamo.list_backends(exclude_tags=()):
    torch._dynamo.register_backend(backend, name="convoy")
