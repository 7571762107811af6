"""Higher-order operators of ``torch.export``, those of functions, in terms of other operators.

``torch.cond`` computes both branches and selects; scans, maps and loops are unrolled. The number of
steps of a ``while_loop`` must not depend on values of inputs. ``flex_attention`` writes its scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from ..errors import UnsupportedOp

_ops = torch.ops.higher_order


def has_functions(program: ExportedProgram) -> bool:
    """Whether a function is an argument of an operator."""
    return any(node.target in _RULES for node in program.graph.nodes)


class Straight(torch.nn.Module):
    """A program whose functions are run in place, to be exported again."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.graph_module = program.module(check_guards=False)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return _run(self.graph_module, *tensors)


class _Interpreter(torch.fx.Interpreter):
    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # in the message of what a rule raises

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = _RULES.get(target)
        return rule(*args, **kwargs) if rule else super().call_function(target, args, kwargs)


def _run(graph: torch.fx.GraphModule, *args: Any) -> Any:
    return _Interpreter(graph).run(*args)


def _cond(
    predicate: Any,
    true: torch.fx.GraphModule,
    false: torch.fx.GraphModule,
    operands: Sequence[Any] = (),
) -> Any:
    if not isinstance(predicate, torch.Tensor):
        return _run(true if predicate else false, *operands)
    pairs = zip(_run(true, *operands), _run(false, *operands), strict=True)
    return tuple(torch.where(predicate, a, b) for a, b in pairs)


def _scan(
    step: torch.fx.GraphModule, state: Sequence[Any], xs: Sequence[Any], others: Sequence[Any]
) -> Any:
    found = []
    for each in zip(*(x.unbind(0) for x in xs), strict=True):
        result = _run(step, *state, *each, *others)
        state, kept = result[: len(state)], result[len(state) :]
        found.append(kept)
    return (*state, *map(torch.stack, zip(*found, strict=True)))


def _associative_scan(
    combine: torch.fx.GraphModule, xs: Sequence[Any], others: Sequence[Any] = ()
) -> Any:
    first, *rest = zip(*(x.unbind(0) for x in xs), strict=True)
    found = [first]
    for each in rest:
        found.append(_run(combine, *found[-1], *each, *others))
    return tuple(map(torch.stack, zip(*found, strict=True)))


def _map(step: torch.fx.GraphModule, xs: Sequence[Any], others: Sequence[Any]) -> Any:
    found = [_run(step, *each, *others) for each in zip(*(x.unbind(0) for x in xs), strict=True)]
    return tuple(map(torch.stack, zip(*found, strict=True)))


def _while(
    condition: torch.fx.GraphModule,
    body: torch.fx.GraphModule,
    state: Sequence[Any],
    others: Sequence[Any] = (),
) -> Any:
    while _holds(_run(condition, *state, *others)):
        state = tuple(_run(body, *state, *others))
    return tuple(state)


def _flex_attention(
    query: Any,
    key: Any,
    value: Any,
    change: torch.fx.GraphModule,
    mask: Sequence[Any],
    scale: float,
    options: object,
    change_others: Sequence[Any] = (),
    mask_others: Sequence[Any] = (),
) -> Any:
    """Scores are written, changed and masked, all at once: their functions are of one score and its
    four positions, which broadcast."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    scores = (query.float() @ key.float().mT) * scale
    at = [
        torch.arange(size, device=query.device).view([-1 if axis == i else 1 for axis in range(4)])
        for i, size in enumerate(scores.shape)
    ]
    kept = _run(mask[-1], *at, *mask_others)
    scores = torch.where(kept, _run(change, scores, *at, *change_others), -math.inf)
    weights = torch.ops.aten._safe_softmax.default(scores, -1)
    statistics = (scores.logsumexp(-1), scores.amax(-1))
    return (weights.to(query.dtype) @ value, *(x / math.log(2) for x in statistics))


def _holds(condition: Any) -> bool:
    try:
        return bool(condition)
    except Exception as err:  # of the trace, which has no values of inputs
        raise UnsupportedOp(
            "a while_loop that ends by values of inputs",
            "a number of steps that is known when it is compiled",
            "Run the most steps that it may take, each selected by torch.where.",
        ) from err


_RULES: dict[Any, Callable[..., Any]] = {
    _ops.cond: _cond,
    _ops.flex_attention: _flex_attention,
    _ops.scan: _scan,
    _ops.associative_scan: _associative_scan,
    _ops.map_impl: _map,
    _ops.while_loop: _while,
}
